from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tasklm.encoders.layers import attention
from tasklm.encoders.layers.attention import Layout, attend, layout_of
from tasklm.errors import TrainingError
from tasklm.tokens.batches import TokenBatch
from tests.encoders.samples import KINDS, packed, rows_of, stirred, texts

LENGTHS = (6, 7, 11, 1)


def without_bounds(batch: TokenBatch) -> TokenBatch:
    return dataclasses.replace(batch, bounds=None, longest=0)


def piece_by_piece(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, same: Tensor, longest: int, _: int
) -> Tensor:
    """Attention by its formula, one piece after another: what the kernel must compute."""
    assert (
        bounds is same
        and bounds.dtype == torch.int32
        and int(bounds.diff().max()) <= longest
        and int(bounds[-1]) == len(query)
    )
    mixed = torch.empty_like(query)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        scores = (
            torch.einsum("qhd,khd->hqk", query[first:last], key[first:last])
            / query.shape[-1] ** 0.5
        )
        mixed[first:last] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[first:last])
    return mixed


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_packing_change_no_result(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, several = stirred(kind), texts(*LENGTHS)
    alone = [encoder(rows_of([text]))[0] for text in several]
    monkeypatch.setattr(attention, "varlen_attn", piece_by_piece)  # PyTorch's runs on GPUs alone
    monkeypatch.setattr(attention, "_check_kernel", lambda query: None)
    padded, pack = rows_of(several), packed(several, padding=7)
    rows, grid, bounded = encoder(padded), encoder(without_bounds(pack)), encoder(pack)
    assert rows.shape == (4, 11, 32) and grid.shape == bounded.shape == (1, 32, 32)
    assert bool(rows.isfinite().all() and grid.isfinite().all() and bounded.isfinite().all())
    for number, (text, wanted) in enumerate(zip(several, alone, strict=True)):
        first = sum(LENGTHS[:number])
        for found in (
            rows[number, : len(text)],
            grid[0, first : first + len(text)],
            bounded[0, first : first + len(text)],
        ):
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_groups_of_bounded_rows_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, batch = stirred("bert"), rows_of(texts(*LENGTHS))
    wanted = encoder(batch)
    monkeypatch.setattr(attention, "varlen_attn", piece_by_piece)
    monkeypatch.setattr(attention, "_check_kernel", lambda query: None)
    monkeypatch.setattr("tasklm.tokens.batches.MOST_BOUNDED", 10)
    counted = batch.with_bounds()
    assert counted.bounds is not None and len(counted.bounds) == 2
    torch.testing.assert_close(
        encoder(counted)[batch.pieces > 0], wanted[batch.pieces > 0], atol=1e-5, rtol=1e-5
    )


def test_padding_is_cut_so_that_no_bounded_piece_is_longer_than_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel does not write beyond `longest` tokens of a piece; what it leaves there may be
    NaN, also in gradients.
    """
    encoder, rows = stirred("bert"), rows_of([*texts(11, 9, 3), torch.zeros(32, dtype=torch.long)])
    pieces = torch.where(rows.ids == 0, 0, rows.pieces)  # the last row is nothing but padding
    batch = dataclasses.replace(rows, pieces=pieces, longest=11, most=2)
    wanted = encoder(dataclasses.replace(batch, longest=0))
    monkeypatch.setattr(attention, "varlen_attn", piece_by_piece)
    monkeypatch.setattr(attention, "_check_kernel", lambda query: None)
    counted = batch.with_bounds()
    assert counted.bounds is not None and counted.bounds.shape == (1, 4 * (2 + 3) + 1)
    torch.testing.assert_close(
        encoder(counted)[pieces > 0], wanted[pieces > 0], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_wanted_tokens_get_the_states_and_gradients_that_they_have_among_all(
    kind: str, layers: int
) -> None:
    encoder, batch = stirred(kind, layers=layers), rows_of(texts(*LENGTHS))
    wanted = torch.tensor([0, 13, 5, 13, 33])  # flat places, one of them twice
    outcomes = []
    for states in (encoder(batch).flatten(0, 1)[wanted], encoder(batch, wanted)):
        encoder.zero_grad()
        (states * torch.arange(1.0, 6.0)[:, None]).sin().sum().backward()
        outcomes.append(
            [
                states.detach(),
                *(weight.grad for weight in encoder.parameters() if weight.grad is not None),
            ]
        )
    torch.testing.assert_close(outcomes[1], outcomes[0], atol=1e-4, rtol=1e-4)


def test_whole_rows_need_no_mask_on_a_cpu() -> None:
    assert layout_of(rows_of(texts(5, 5)), 8) == Layout()
    mask = layout_of(rows_of(texts(5, 3)), 8).mask
    assert mask is not None and mask.shape == (2, 1, 5, 5)
    assert not bool(mask[1, 0, :3, 3:].any()) and bool(
        mask[1, 0, 3:, 3:].all()
    )  # padding looks at padding


def test_a_cpu_attends_in_fp32_under_bf16() -> None:
    torch.manual_seed(0)
    query_key_value = torch.randn(2, 5, 3, 4, 8).bfloat16()
    layout = layout_of(rows_of(texts(5, 3)), 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = attend(query_key_value, layout)
    assert mixed.dtype == torch.float32 and torch.equal(
        mixed, attend(query_key_value.float(), layout)
    )


def test_bounds_without_a_kernel_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, pack = stirred("bert"), packed(texts(4, 5), 3)
    with pytest.raises(TrainingError, match=r"no kernel for cpu.*without bounds"):
        encoder(pack)
    monkeypatch.setattr(attention, "varlen_attn", None)
    with pytest.raises(TrainingError, match=r"has no torch\.nn\.attention\.varlen"):
        attention._check_kernel(SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_compiles_into_one_graph(kind: str) -> None:
    encoder, batch = stirred(kind), without_bounds(packed(texts(*LENGTHS), padding=7))
    whole = rows_of(texts(32))  # needs no mask, which the graph does not look for
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True, dynamic=False)
    for each in (batch, whole):
        torch.testing.assert_close(compiled(each), encoder(each), atol=1e-5, rtol=1e-5)
    compiled(batch).square().sum().backward()
    found = [parameter.grad for parameter in encoder.parameters()]
    encoder.zero_grad()
    encoder(batch).square().sum().backward()
    for got, parameter in zip(found, encoder.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_the_kernels_call_is_one_that_this_pytorch_knows(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    varlen = pytest.importorskip(
        "torch.nn.attention.varlen"
    )  # imported by the package where there is a GPU
    monkeypatch.setattr(attention, "varlen_attn", varlen.varlen_attn)
    monkeypatch.setattr(attention, "_check_kernel", lambda query: None)
    encoder = stirred(kind).to(
        "meta", torch.bfloat16
    )  # shapes without numbers: the kernel's own rules, and no GPU
    batch = packed(texts(*LENGTHS), padding=7).to(torch.device("meta"))
    hidden = encoder(batch)
    assert hidden.shape == (1, 32, 32) and hidden.dtype == torch.bfloat16
    hidden.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_encoders_load_where_triton_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['triton'] = None; "
        "from tasklm.encoders.base import ENCODERS; print(*ENCODERS.names())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    names = ["albert", "bert", "bilstm", "modern", "modernbert", "roberta"]
    assert done.stdout.split() == names, done.stderr
