"""Attention by the kernels that run on GPUs alone; `pytest tests/encoders -k gpu` there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.layers import attention
from tasklm.encoders.layers.attention import layout_of
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.packing import TILE, tile_starts
from tests.encoders.samples import packed, rows_of, stir, texts

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="the kernels run on GPUs alone"
)
LENGTHS = (40, 96, 128, 200, 256)  # one block of tokens, and two


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled by another test counts here, and fp32 means fp32."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def pieces_of(rows: int, length: int, seed: int) -> Tensor:
    """Rows of random pieces, with padding at the end of most; the first is one piece, the second
    padding alone.
    """
    draw = torch.Generator().manual_seed(seed)
    pieces = torch.zeros(rows, length, dtype=torch.long)
    pieces[0] = 1
    for row in range(2, rows):
        cuts = torch.randint(1, length, (4,), generator=draw).sort().values
        pieces[row] = 1 + (torch.arange(length)[:, None] >= cuts).sum(1)
        pieces[row, length - int(torch.randint(0, length // 2, (), generator=draw)) :] = 0
    return pieces


def reference(query_key_value: Tensor, pieces: Tensor) -> Tensor:
    """Attention of PyTorch in fp32, by a mask: (rows, length, heads, head width)."""
    query, key, value = query_key_value.float().permute(2, 0, 3, 1, 4)
    mask = pieces[:, None, :, None] == pieces[:, None, None, :]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(
        1, 2
    )


def error_of(found: Tensor, wanted: Tensor) -> float:
    """The largest difference as a share of the largest value."""
    assert found.shape == wanted.shape and bool(found.isfinite().all())
    return float(
        (found.float() - wanted.float()).detach().abs().max() / wanted.detach().abs().max()
    )


def mix(query_key_value: Tensor, pieces: Tensor, bias: Tensor | None = None) -> Tensor:
    assert attention.row_attention is not None, (
        "triton is not installed, though PyTorch for GPUs brings it"
    )
    mixed: Tensor = attention.row_attention(query_key_value, bias, pieces, None)
    return mixed


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("length", LENGTHS)
def test_row_attention_is_attention_inside_pieces_on_a_gpu(
    length: int, width: int, compiled: bool
) -> None:
    if not attention.fits(length, width, False):
        pytest.skip("this GPU's programs have too little memory")
    torch.manual_seed(length + width)
    pieces = pieces_of(9, length, seed=width).cuda()
    given = torch.randn(9, length, 3, 3, width, device="cuda").bfloat16()  # what both compute from
    weights = torch.randn(9, length, 3, width, device="cuda").bfloat16()
    call: Callable[..., Tensor] = (
        torch.compile(mix, fullgraph=True, dynamic=False) if compiled else mix
    )
    ours, theirs = given.clone().requires_grad_(), given.float().requires_grad_()
    bias, their_bias = (
        torch.zeros(3 * 3 * width, device="cuda", requires_grad=True) for _ in range(2)
    )
    found = call(ours, pieces, bias)
    wanted = reference(theirs + their_bias.view(3, 3, width), pieces)
    assert found.dtype == torch.bfloat16
    assert error_of(found, wanted) < 1e-2
    found.backward(weights)
    wanted.backward(weights.float())
    assert ours.grad is not None and theirs.grad is not None
    for part, name in enumerate(("query", "key", "value")):
        assert error_of(ours.grad[:, :, part], theirs.grad[:, :, part]) < 1.5e-2, name
    assert (
        bias.grad is not None
        and their_bias.grad is not None
        and error_of(bias.grad, their_bias.grad) < 1.5e-2
    )


def test_tiles_of_short_pieces_give_what_whole_rows_give_on_a_gpu() -> None:
    torch.manual_seed(0)
    pieces = torch.zeros(3, 256, dtype=torch.long)
    for row, sizes in enumerate(((100, 90, 20, 30), (128, 5, 60), (7, 128, 121))):
        pieces[row, : sum(sizes)] = torch.repeat_interleave(
            torch.arange(1, len(sizes) + 1), torch.tensor(sizes)
        )
    tiles = torch.from_numpy(tile_starts(pieces.numpy(), TILE)).cuda()
    given = torch.randn(3, 256, 3, 3, 64, device="cuda").bfloat16()
    outcomes = []
    for chosen in (None, tiles):
        own = given.clone().requires_grad_()
        assert attention.row_attention is not None
        mixed = attention.row_attention(own, None, pieces.cuda(), chosen)
        mixed.float().sin().sum().backward()
        outcomes.append((mixed.detach(), own.grad))
    real = pieces > 0
    for whole, tiled in zip(*outcomes, strict=True):
        assert tiled is not None and whole is not None and bool(tiled.isfinite().all())
        assert error_of(tiled[real.cuda()], whole[real.cuda()]) < 1e-2


def test_row_attention_does_not_look_across_pieces_on_a_gpu() -> None:
    """Exactly: what stands in one piece changes no bit of another, nor of its gradient."""
    torch.manual_seed(0)
    pieces = torch.tensor([[1] * 30 + [2] * 50 + [0] * 16]).cuda()
    outcomes = []
    given = torch.randn(1, 96, 3, 2, 64, device="cuda").bfloat16()
    for other in (1.0, -50.0):
        changed = torch.cat((given[:, :30], other * given[:, 30:]), 1).requires_grad_()
        mixed = mix(changed, pieces)
        mixed.float().square().sum().backward()
        assert changed.grad is not None
        outcomes.append((mixed[:, :30].detach(), changed.grad[:, :30]))
    assert all(torch.equal(first, second) for first, second in zip(*outcomes, strict=True))


def test_row_attention_passes_pytorchs_own_checks_on_a_gpu() -> None:
    from tasklm.encoders.kernels.row_attention import row_attention_of

    query_key_value = torch.randn(
        2, 40, 3, 2, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    bias = torch.zeros(3 * 2 * 32, device="cuda", requires_grad=True)
    checks = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
    )  # not of changing shapes: rows have one length
    torch.library.opcheck(
        row_attention_of,
        (query_key_value, bias, pieces_of(2, 40, 0).cuda(), None),
        test_utils=checks,
    )


def test_the_layout_is_that_of_the_fastest_kernel_on_a_gpu() -> None:
    device = torch.device("cuda")
    short, long = rows_of(texts(20, 128)).to(device), rows_of(texts(20, 264)).to(device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layout_of(short, 64).pieces is not None
        assert (
            layout_of(short, 48).mask is not None
        )  # a head width that the kernel does not compute
        assert layout_of(long, 64).mask is not None
        assert layout_of(packed(texts(5), 3).to(device), 64).bounds is not None
    assert layout_of(short, 64).mask is not None  # in fp32


SHAPES = {
    "short": ((6, 7, 11, 1, 15), 8),
    "long": ((60, 70, 11, 1, 140), 10),
}  # lengths of the texts, padding at the end of their row


def encoder_of(kind: str, width: int, heads: int, positions: int = 256) -> nn.Module:
    torch.manual_seed(0)
    encoder = ENCODERS.get(kind)(Shape(64, 3, width, heads, 2 * width, positions)).cuda().eval()
    stir(encoder, 0.1)
    return encoder


WAYS = [
    (kind, size, backend)
    for kind in ("bert", "modern", "albert")
    for size in SHAPES
    for backend in ("none", "aot_eager")
]
WAYS += [
    ("bert", "short", "inductor"),
    ("modern", "short", "inductor"),
]  # as in training; slow to compile


@pytest.mark.parametrize(("kind", "size", "backend"), WAYS)
def test_padded_packed_and_bounded_agree_on_a_gpu(kind: str, size: str, backend: str) -> None:
    """Rows of up to 256 tokens go through row_attention, longer ones through a mask, bounds through
    PyTorch's kernel.
    """
    lengths, padding = SHAPES[size]
    encoder, several, device = encoder_of(kind, 64, 2), texts(*lengths), torch.device("cuda")
    call = (
        encoder
        if backend == "none"
        else torch.compile(encoder, backend=backend, fullgraph=True, dynamic=False)
    )
    pack = packed(several, padding)
    real = [number for number, text in enumerate(several) for _ in text]
    inside = [place for text in several for place in range(len(text))]
    weights = torch.randn(len(real), 64, device=device)

    def outcome(
        run: Callable[[TokenBatch], Tensor], batch: TokenBatch, bf16: bool
    ) -> tuple[Tensor, Tensor]:
        encoder.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
            hidden = run(batch.to(device))
        assert bool(hidden.isfinite().all())  # padding too
        hidden = (hidden[real, inside] if len(hidden) > 1 else hidden[0, : len(real)]).float()
        (hidden * weights).mean().backward()
        return hidden.detach(), torch.cat(
            [p.grad.flatten() for p in encoder.parameters() if p.grad is not None]
        )

    def apart(found: Tensor, wanted: Tensor) -> float:
        return float((found - wanted).norm() / wanted.norm())

    exact = outcome(encoder, rows_of(several), bf16=False)
    grid = dataclasses.replace(pack, bounds=None, longest=0)
    for batch in (rows_of(several), grid, pack):
        hidden, gradient = outcome(call, batch, bf16=True)
        assert apart(hidden, exact[0]) < 0.02 and apart(gradient, exact[1]) < 0.02
    again = outcome(encoder, grid, bf16=False)
    assert apart(again[0], exact[0]) < 1e-5 and apart(again[1], exact[1]) < 1e-4


def test_bounds_of_a_batch_give_what_its_pieces_give_on_a_gpu() -> None:
    """With TokenBatch.with_bounds, whose array ends in empty pieces."""
    encoder, device = encoder_of("bert", 64, 2), torch.device("cuda")
    pack = dataclasses.replace(packed(texts(20, 30, 40, 5), 33), bounds=None, longest=0)
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        by_pieces, by_bounds = encoder(pack.to(device)), encoder(pack.with_bounds().to(device))
    assert error_of(by_bounds[:, :95], by_pieces[:, :95]) < 0.03


@pytest.mark.parametrize("compiled", [False, True])
def test_bounds_of_more_pieces_than_a_launch_takes_on_a_gpu(compiled: bool) -> None:
    """600 rows of 384 tokens may hold 78,000 pieces: they come in groups."""
    encoder, device = encoder_of("bert", 64, 2, positions=384), torch.device("cuda")
    batch = rows_of(texts(*[305 + number % 80 for number in range(600)]))
    counted = batch.with_bounds()
    assert counted.bounds is not None and len(counted.bounds) > 1
    call = torch.compile(encoder, fullgraph=True, dynamic=False) if compiled else encoder
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        by_mask, by_bounds = encoder(batch.to(device)), call(counted.to(device))
    real = batch.pieces > 0
    assert error_of(by_bounds[real], by_mask[real]) < 0.03
