from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from tasklm.budget import costs
from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import micro_batch_for, training_bytes
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.layers.attention import Layout
from tasklm.encoders.shapes import SIZES, shape_of
from tasklm.errors import TrainingError
from tasklm.recipe.model_sections import Model
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary
from tests.budget.test_costs import LENGTH, Case, size

VIEWS = {
    torch.ops.aten.view.default,
    torch.ops.aten.permute.default,
    torch.ops.aten.select.int,
    torch.ops.aten.alias.default,
}


def kept_bytes(module: nn.Module, forward: Callable[[], Tensor]) -> tuple[int, int]:
    """The bytes of all storages that the forward pass saves, weights left out, and of bf16 copies
    of matrices.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    matrices = {tuple(parameter.shape) for parameter in module.parameters() if parameter.ndim == 2}
    found: dict[int, tuple[int, bool]] = {}
    alive = []  # so that no address is used twice

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            shape = tuple(tensor.shape)
            copy = tensor.dtype == torch.bfloat16 and (shape in matrices or shape[::-1] in matrices)
            found[storage.data_ptr()] = (storage.nbytes(), copy)
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        forward()
    return sum(count for count, copy in found.values() if not copy), sum(
        count for count, copy in found.values() if copy
    )


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("bf16", [False, True])
def test_bert_keeps_what_is_predicted(vocabulary: Vocabulary, bf16: bool, dropout: float) -> None:
    case = Case(vocabulary, dropout)
    kept, copies = kept_bytes(case.modules, lambda: case.loss(bf16))
    memory = training_bytes(
        case.cost,
        case.tokens,
        case.targets,
        LENGTH,
        wanted=case.targets,
        bf16=bf16,
        compiled=False,
        dropout=dropout > 0,
        cpu=True,
    )
    log_probabilities = 4 * case.targets * case.shape.vocabulary
    assert memory.activations == pytest.approx(kept - log_probabilities, rel=0.02)
    assert memory.copies == copies and log_probabilities < memory.logits


def _attend_in_its_own_type(
    query_key_value: Tensor, layout: Layout, bias: Tensor | None = None
) -> Tensor:
    query, key, value = query_key_value.permute(
        2, 0, 3, 1, 4
    )  # each (rows, heads, length, head width)
    return (
        functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask)
        .transpose(1, 2)
        .flatten(2)
    )


def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention computes in the type that it is given, and autocast has norms compute in fp32."""

    def norm(self: nn.LayerNorm, hidden: Tensor) -> Tensor:
        return functional.layer_norm(
            hidden.float(), self.normalized_shape, self.weight, self.bias, self.eps
        )

    monkeypatch.setattr(nn.LayerNorm, "forward", norm)
    for place in ("layers.attention", "modern"):
        monkeypatch.setattr(f"tasklm.encoders.{place}.attend", _attend_in_its_own_type)


@pytest.mark.parametrize("masked", [False, True])
def test_bert_with_attention_in_bf16_as_on_a_gpu(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    _as_on_a_gpu(monkeypatch)
    case = Case(vocabulary)
    if masked:
        case.corrupted.batch.pieces[:, LENGTH // 2 :] = 2
    kept, _ = kept_bytes(case.modules, lambda: case.loss(bf16=True))
    memory = training_bytes(
        case.cost,
        case.tokens,
        case.targets,
        LENGTH,
        wanted=case.targets,
        bf16=True,
        compiled=False,
        masked=masked,
    )
    assert memory.activations == pytest.approx(
        kept - 4 * case.targets * case.shape.vocabulary, rel=0.02
    )


SHAPES = {
    "bert": (512, 0),
    "electra": (512, 32),
    "albert": (512, 32),
    "modern": (320, 0),
}  # inner width, width of embeddings


def encoder_case(name: str, layers: int = 2) -> tuple[nn.Module, TokenBatch, EncoderCost]:
    """An encoder without heads, a batch for it and its cost."""
    torch.manual_seed(0)
    kind, (inner, embedding) = "bert" if name == "electra" else name, SHAPES[name]
    ids = torch.randint(5, 900, (3, LENGTH))
    batch = TokenBatch(ids, torch.ones_like(ids), torch.arange(LENGTH).expand_as(ids).clone())
    shape = Shape(900, layers, 128, 2, inner, LENGTH, embedding=embedding)
    return (
        ENCODERS.get(kind)(shape),
        batch,
        EncoderCost(layers, 128, inner, 900, LENGTH, kind=kind, embedding=embedding),
    )


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_every_encoder_keeps_what_is_predicted(
    name: str, bf16: bool, cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, batch, cost = encoder_case(name)
    if not cpu:
        _as_on_a_gpu(monkeypatch)

    def forward() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return encoder(batch)

    kept, copies = kept_bytes(encoder, forward)
    memory = training_bytes(cost, batch.ids.numel(), 0, LENGTH, bf16=bf16, compiled=False, cpu=cpu)
    assert memory.activations == pytest.approx(kept, rel=0.01) and memory.copies == copies


def kept_by_a_compiled_graph(encoder: nn.Module, batch: TokenBatch) -> int:
    """The bytes of all activations that the compiled forward pass hands to the backward pass."""
    found: dict[Any, int] = {}
    tokens = batch.ids.numel()

    def look(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        outputs = next(iter(graph.graph.find_nodes(op="output"))).args[0]
        for node in outputs[1:]:  # the first is the result
            while node.op != "placeholder" and node.target in VIEWS:
                node = node.args[0]
            value = node.meta["val"]
            if node.op != "placeholder" and value.numel() % tokens == 0:  # else a copy of a weight
                found[node] = value.numel() * value.element_size()
        made = [node.meta["val"] for node in outputs]
        return make_boxed_func(
            lambda *_: [torch.empty(value.shape, dtype=value.dtype) for value in made]
        )  # nothing need be computed

    ways = {
        "partition_fn": min_cut_rematerialization_partition,
        "decompositions": select_decomp_table(),
    }
    backend = aot_autograd(
        fw_compiler=look, bw_compiler=lambda graph, _: make_boxed_func(graph), **ways
    )
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(encoder, backend=backend, fullgraph=True, dynamic=False)(batch)
    return sum(found.values())


@pytest.mark.parametrize("name", ["bert", "modern"])
def test_compiled_layers_keep_what_is_predicted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference that one more layer makes: what the partitioner does to the embeddings is its
    own.
    """
    _as_on_a_gpu(monkeypatch)
    kept, predicted = [], []
    for layers in (1, 2):
        encoder, batch, cost = encoder_case(name, layers)
        kept.append(kept_by_a_compiled_graph(encoder, batch))
        predicted.append(training_bytes(cost, batch.ids.numel(), 0, LENGTH).activations)
    assert predicted[1] - predicted[0] == pytest.approx(kept[1] - kept[0], rel=0.02)


# In bf16 less is computed: a CPU without units for it takes hundreds of times as long.
@pytest.mark.parametrize(
    ("layers", "width", "rows", "bf16"),
    [(3, 128, 24, False), (6, 64, 40, False), (3, 64, 10, True), (6, 64, 8, True)],
)
def test_the_peak_of_a_step(
    vocabulary: Vocabulary, bf16: bool, layers: int, width: int, rows: int
) -> None:
    """Against the profiler's record of every allocation; gradients exist already, as from the
    second micro-batch on.
    """
    case = Case(vocabulary, layers=layers, width=width, rows=rows)
    for parameter in case.modules.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        case.loss(bf16).backward()
    events = sorted(
        (event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"),
        key=lambda e: e.start_ns(),
    )
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    memory = training_bytes(
        case.cost,
        case.tokens,
        case.targets,
        LENGTH,
        wanted=case.targets,
        bf16=bf16,
        compiled=False,
        cpu=True,
    )
    predicted = memory.total - memory.weights - memory.gradients - memory.optimiser
    assert peak > 0 and 0.98 < predicted / peak < 1.15


def test_optimisers_keep_what_they_say() -> None:
    small = nn.Linear(8, 8)
    optimiser = torch.optim.AdamW(small.parameters())
    small(torch.zeros(1, 8)).sum().backward()
    optimiser.step()
    state = sum(
        value.nbytes for one in optimiser.state.values() for value in one.values() if value.ndim
    )
    assert state == 8 * size(small)
    cost = EncoderCost(2, 64, 256, 900, 512)
    adamw, muon = (training_bytes(cost, 64, 8, 64, optimiser=name) for name in ("adamw", "muon"))
    assert adamw.optimiser == 8 * (cost.parameters + cost.prediction_parameters)
    assert adamw.optimiser - muon.optimiser == 4 * 2 * (4 * 64 * 64 + 2 * 64 * 256)
    assert training_bytes(cost, 64, 8, 64, optimiser="lamb") == adamw
    sgd = training_bytes(cost, 64, 8, 64, optimiser="sgd")
    assert 2 * sgd.optimiser == adamw.optimiser
    with pytest.raises(TrainingError, match="adamw, lamb, muon, sgd"):
        training_bytes(cost, 64, 8, 64, optimiser="adagrad")


def test_compiled_steps_need_no_more() -> None:
    for kind in costs.ARCHITECTURES:
        cost = EncoderCost(4, 256, 1024, 8000, 512, kind=kind)
        eager, compiled = (
            training_bytes(cost, 4096, 600, 128, compiled=way) for way in (False, True)
        )
        assert compiled.total < eager.total and compiled.weights == eager.weights


def test_micro_batches_fit_and_are_as_few_as_possible() -> None:
    for rows in (1, 7, 64, 100):
        for free in (30.0, 41.0, 100.0, 1e6):
            parts = micro_batch_for(rows, lambda count: 10.0 + 3.0 * count, free)

            def largest(parts: int, rows: int = rows) -> int:
                return max(len(part) for part in torch.arange(rows).tensor_split(parts))

            assert 10 + 3 * largest(parts) <= 0.9 * free
            assert parts == 1 or 10 + 3 * largest(parts - 1) > 0.9 * free
    with pytest.raises(TrainingError, match=r"one row needs .*--model.size"):
        micro_batch_for(8, lambda count: 1e9 * count, 1e9)


def test_the_peak_on_a_gpu_is_within_a_fifth_of_the_prediction() -> None:
    """Compares with what `benchmarks/training.py` measured on GPUs and wrote into the docs."""
    found = json.loads(
        (Path(__file__).parents[2] / "docs" / "benchmarks" / "training.json").read_text(
            encoding="utf-8"
        )
    )["devices"]
    checked = 0
    for device, cases in found.items():
        for name, result in cases.items():
            for run in result["engines"].get("ours", {}).get("runs", []):
                if "NVIDIA" not in device:
                    continue
                size_name, _, rows_and_length = name.partition(":")
                rows, length = map(int, rows_and_length.split("x"))
                shape = shape_of(
                    Model(
                        encoder="bert",
                        **dict(zip(("layers", "width"), _numbers(size_name), strict=True)),
                    ),
                    "base",
                    30_522,
                    512,
                )
                cost = EncoderCost(
                    shape.layers,
                    shape.width,
                    shape.feedforward,
                    shape.vocabulary,
                    512,
                    heads=shape.heads,
                )
                predicted = training_bytes(
                    cost, rows * length, rows * round(0.15 * length), length
                ).total
                assert predicted == pytest.approx(run["peak_memory"], rel=0.2), name
                checked += 1
    assert checked


def _numbers(size_name: str) -> tuple[int, int]:
    return SIZES[size_name] if size_name in SIZES else tuple(map(int, size_name.split("x")))  # type: ignore[return-value]
