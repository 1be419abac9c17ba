from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.layers.two_streams import Streams
from tasklm.encoders.modern import ROTARY_BASE
from tasklm.errors import RecipeError
from tasklm.models.task_model import cost_of
from tasklm.objectives.permutation import PermutationLanguageModel, Permuted
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.orders import order_rows
from tasklm.tokens.tokenizer import Vocabulary
from tests.budget.test_costs_memory import kept_bytes
from tests.encoders.samples import stir

KINDS = ["bert", "albert", "modern"]
LENGTHS = (
    [11, 8],
    [17],
    [5, 6, 7],
    [2],
)  # of the pieces of each row; the last row has nothing to predict


def rows_of(
    vocabulary: Vocabulary,
    lengths: tuple[list[int], ...] = LENGTHS,
    length: int = 20,
    segments: bool = True,
) -> TokenBatch:
    """Rows of pieces, each [CLS] … [SEP], with padding, and with the second half of every piece as
    its second segment.
    """
    ids = torch.full((len(lengths), length), vocabulary.pad)
    pieces = torch.zeros(len(lengths), length, dtype=torch.long)
    positions, second = torch.zeros_like(pieces), torch.zeros_like(pieces)
    for row, of_row in enumerate(lengths):
        begin = 0
        for number, size in enumerate(of_row, 1):
            here = slice(begin, begin + size)
            ids[row, here] = torch.randint(5, len(vocabulary), (size,))
            ids[row, begin], ids[row, begin + size - 1] = vocabulary.cls, vocabulary.sep
            pieces[row, here], positions[row, here] = number, torch.arange(size)
            second[row, begin + size // 2 : begin + size] = 1
            begin += size
    return TokenBatch(ids, pieces, positions, segments=second if segments else None)


def made(
    vocabulary: Vocabulary, kind: str, layers: int = 3, embedding: int = 16, **settings: Any
) -> tuple[Any, PermutationLanguageModel]:
    torch.manual_seed(0)
    shape = Shape(len(vocabulary) + 12, layers, 32, 4, 48, 32, embedding=embedding)
    encoder = ENCODERS.get(kind)(shape)
    objective = PermutationLanguageModel(kind, shape, vocabulary, Train(**settings))
    stir(encoder)
    stir(objective)
    return encoder, objective


def logits_of(encoder: Any, objective: PermutationLanguageModel, corrupted: Permuted) -> Tensor:
    """The logits of all places (rows, places, vocabulary)."""
    with torch.no_grad():
        streams = Streams(objective.query, corrupted.picked, *corrupted.seen())
        return objective.logits(encoder.two_streams(corrupted.batch, streams), encoder.token)


def targets_of(corrupted: Permuted) -> list[tuple[int, int, int]]:
    """Returns row, place and column of all targets."""
    found = (corrupted.answers != NONE).nonzero().tolist()
    return [(row, place, int(corrupted.picked[row, place])) for row, place in found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_sees_the_tokens_before_it_in_the_order_of_its_piece_and_no_others(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective = made(vocabulary, kind, mask_rate=0.4)
    corrupted = objective.corrupt(rows_of(vocabulary, ([11, 8],)), 1)
    before, targets = logits_of(encoder, objective, corrupted), targets_of(corrupted)
    pieces, order = corrupted.batch.pieces[0], corrupted.order[0]
    assert len(targets) > 4 and len({int(pieces[column]) for _, _, column in targets}) == 2
    for changed in range(20):
        ids = corrupted.batch.ids.clone()
        ids[0, changed] = 5 if ids[0, changed] != 5 else 6
        after = logits_of(
            encoder, objective, replace(corrupted, batch=replace(corrupted.batch, ids=ids))
        )
        for row, place, column in targets:
            sees = bool(pieces[changed] == pieces[column]) and bool(order[changed] < order[column])
            difference = float((after[row, place] - before[row, place]).abs().max())
            assert (difference > 1e-4) if sees else (difference == 0.0), (changed, column)


def norm(states: Tensor, module: Any) -> Tensor:
    return functional.layer_norm(states, states.shape[-1:], module.weight, module.bias, module.eps)


def turned(states: Tensor, position: int) -> Tensor:
    """One head's query or key turned by its position, pair by pair as complex numbers."""
    half = len(states) // 2
    speeds = torch.tensor(
        [ROTARY_BASE ** (-2 * i / len(states)) for i in range(half)], dtype=torch.float64
    )
    turned = torch.complex(states[:half].double(), states[half:].double()) * torch.polar(
        torch.ones(half).double(), position * speeds
    )
    return torch.cat((turned.real, turned.imag)).float()


def slow_mix(
    layer: Any, rotary: bool, asking: Tensor, position: int, seen: list[tuple[Tensor, int]]
) -> Tensor:
    """What one state gets from the states that it sees, head by head."""
    weights = layer.query_key_value.weight.chunk(3)
    biases = (
        (0.0, 0.0, 0.0)
        if layer.query_key_value.bias is None
        else layer.query_key_value.bias.chunk(3)
    )
    query = (weights[0] @ asking + biases[0]).chunk(layer.heads)
    mixed = []
    for head in range(layer.heads):
        keys = [(weights[1] @ state + biases[1]).chunk(layer.heads)[head] for state, _ in seen]
        values = [(weights[2] @ state + biases[2]).chunk(layer.heads)[head] for state, _ in seen]
        if rotary:
            keys = [turned(key, place) for key, (_, place) in zip(keys, seen, strict=True)]
        own = turned(query[head], position) if rotary else query[head]
        scores = torch.stack([own @ key for key in keys]) / len(own) ** 0.5
        mixed.append(scores.softmax(0) @ torch.stack(values))
    return torch.cat(mixed)


def slow_layer(
    kind: str, layer: Any, asking: Tensor, position: int, seen: list[tuple[Tensor, int]]
) -> Tensor:
    """The next state of one token or query."""
    if kind == "modern":
        first = isinstance(layer.attention_norm, nn.Identity)
        normed = [
            (state if first else norm(state, layer.attention_norm), place)
            for state, place in [(asking, position), *seen]
        ]
        asking = asking + layer.attention_out(slow_mix(layer, True, *normed[0], normed[1:]))
        value, gate = layer.up(norm(asking, layer.norm)).chunk(2)
        return asking + layer.down(functional.gelu(value) * gate)
    asking = norm(
        asking + layer.attention_out(slow_mix(layer, False, asking, position, seen)),
        layer.attention_norm,
    )
    inner = functional.gelu(layer.up(asking), approximate="tanh" if kind == "albert" else "none")
    return norm(asking + layer.down(inner), layer.norm)


def slow_logits(
    kind: str,
    encoder: Any,
    objective: PermutationLanguageModel,
    corrupted: Permuted,
    row: int,
    column: int,
) -> Tensor:
    """The logits of one target: the tokens before it, put into their order, and a query after them,
    state by state.
    """
    batch, order = corrupted.batch, corrupted.order[row].tolist()
    piece = [
        other
        for other in range(len(order))
        if batch.pieces[row, other] == batch.pieces[row, column]
    ]
    known = sorted(
        (other for other in piece if order[other] < order[column]), key=lambda other: order[other]
    )

    def start(vector: Tensor, place: int) -> Tensor:
        if kind != "modern":
            assert batch.segments is not None
            vector = (
                vector
                + encoder.position.weight[batch.positions[row, place]]
                + encoder.segment.weight[batch.segments[row, place]]
            )
        embedded: Tensor = encoder.projection(norm(vector, encoder.norm))
        return embedded

    positions = [int(batch.positions[row, other]) for other in known]
    states = [start(encoder.token.weight[batch.ids[row, other]], other) for other in known]
    query = start(objective.query, column)
    for layer in [encoder.shared] * encoder.shape.layers if kind == "albert" else encoder.layers:
        seen = list(zip(states, positions, strict=True))
        query = slow_layer(kind, layer, query, int(batch.positions[row, column]), seen)
        visible = [
            sum(order[other] <= order[one] for other in known) for one in known
        ]  # of the order's beginning
        states = [
            slow_layer(kind, layer, *seen[number], seen[: visible[number]])
            for number in range(len(known))
        ]
    query = norm(query, encoder.last_norm) if kind == "modern" else query
    raised = norm(functional.gelu(objective.dense(query), approximate=encoder.gelu), objective.norm)
    return encoder.token.weight @ raised + objective.bias


@pytest.mark.parametrize("kind", KINDS)
def test_both_streams_compute_what_each_target_alone_would_get(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective = made(vocabulary, kind, layers=2, mask_rate=0.3)
    corrupted = objective.corrupt(rows_of(vocabulary), 2)
    logits, targets = logits_of(encoder, objective, corrupted), targets_of(corrupted)
    assert int(corrupted.order.max()) > 2
    total = 0.0
    with torch.no_grad():
        for row, place, column in targets:
            wanted = slow_logits(kind, encoder, objective, corrupted, row, column)
            torch.testing.assert_close(logits[row, place], wanted, atol=1e-5, rtol=1e-5)
            total -= float(wanted.log_softmax(0)[corrupted.batch.ids[row, column]])
        assert float(objective(encoder, corrupted)["lm"]) == pytest.approx(total, rel=1e-5)
    assert objective.targets(corrupted) == {"lm": len(targets)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_graph_computes_the_same_losses_and_gradients(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective = made(vocabulary, kind, layers=2)
    weights = [*encoder.parameters(), *objective.parameters()]
    graphs = list[object]()

    def counting(graph: torch.fx.GraphModule, _: list[Tensor]) -> object:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(objective, backend=counting, fullgraph=True, dynamic=False)
    for seed, lengths in enumerate(
        (LENGTHS, ([20], [2], [9, 9], [2, 3]))
    ):  # places that ask nothing stay in the graph
        corrupted = objective.corrupt(rows_of(vocabulary, lengths), seed)
        losses = [compute(encoder, corrupted)["lm"] for compute in (objective, compiled)]
        torch.testing.assert_close(losses[1], losses[0])
        wanted, found = (torch.autograd.grad(loss, weights, allow_unused=True) for loss in losses)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
        assert any(
            weight is objective.query and bool(grad.abs().max() > 0)
            for weight, grad in zip(weights, found, strict=True)
        )
    assert len(graphs) == 1


@pytest.mark.parametrize(
    ("kind", "embedding"),
    [("bert", 0), ("bert", 16), ("albert", 16), ("modern", 0), ("modern", 16)],
)
def test_flops_are_torchs_for_every_encoder(
    vocabulary: Vocabulary, kind: str, embedding: int
) -> None:
    encoder, objective = made(vocabulary, kind, embedding=embedding)
    corrupted = objective.corrupt(rows_of(vocabulary), 0)
    assert (
        0 < corrupted.targets() < corrupted.picked.numel()
    )  # queries that ask nothing are counted too
    with (
        FlopCounterMode(display=False) as counter,
        nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    ):
        objective(encoder, corrupted)["lm"].backward()
    assert counter.get_total_flops() == objective.flops(cost_of(kind, encoder.shape), corrupted)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_no_less_and_little_more_than_what_is_kept(
    vocabulary: Vocabulary, kind: str, bf16: bool
) -> None:
    shape = Shape(len(vocabulary), 4, 64, 2, 192, 64, embedding=16 if kind == "albert" else 0)
    encoder = ENCODERS.get(kind)(shape)
    objective = PermutationLanguageModel(kind, shape, vocabulary, Train())
    corrupted = objective.corrupt(rows_of(vocabulary, ([64],) * 7, 64, segments=False), 0)

    def forward() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return objective(encoder, corrupted)["lm"]

    kept, copies = kept_bytes(nn.ModuleList([encoder, objective]), forward)
    how = {"bf16": bf16, "compiled": False, "dropout": False, "cpu": True}
    memory = objective.memory(cost_of(kind, shape), Train(), 7 * 64, 64, **how)
    log_probabilities = 4 * corrupted.targets() * shape.vocabulary
    assert 1.0 < (memory.activations + memory.copies) / (kept + copies - log_probabilities) < 1.2
    assert log_probabilities < memory.logits


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_is_close_and_dropout_and_micro_batches_work(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective = made(vocabulary, kind)
    corrupted = objective.corrupt(rows_of(vocabulary), 0)
    with torch.no_grad():
        exact = float(objective(encoder, corrupted)["lm"])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert float(objective(encoder, corrupted)["lm"]) == pytest.approx(exact, rel=0.03)
        parts = [corrupted.part(number, 3).counted() for number in range(3)]
        assert sum(float(objective(encoder, part)["lm"]) for part in parts) == pytest.approx(
            exact, rel=1e-5
        )
        encoder.dropout.p = 0.5
        assert float(objective(encoder.train(), corrupted)["lm"]) != pytest.approx(exact, rel=1e-5)


def drawn(
    vocabulary: Vocabulary, batch: TokenBatch, rate: float, seed: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    special = np.isin(np.arange(len(vocabulary)), vocabulary.specials)
    return order_rows(batch.ids.numpy(), batch.pieces.numpy(), special, rate, seed, first)


def test_every_piece_has_its_share_of_targets_in_an_order_of_their_own(
    vocabulary: Vocabulary,
) -> None:
    batch = rows_of(vocabulary, ([22, 42, 32], [62, 2, 3], [12] * 8, [2]), length=100)
    order, picked, answers = drawn(vocabulary, batch, 0.2, 5)
    shares = [[4, 8, 6], [12, 0, 0], [2] * 8, [0]]
    assert picked.shape == answers.shape == (4, 20) and [
        int((row != NONE).sum()) for row in answers
    ] == [18, 12, 16, 0]
    for row, of_row in enumerate(shares):
        asked = answers[row] != NONE
        assert (
            set(picked[row, asked]) == set(np.flatnonzero(order[row]))
            and (answers[row] == batch.ids[row].numpy()[picked[row]])[asked].all()
        )
        assert not set(answers[row, asked]) & set(vocabulary.specials)
        for number, share in enumerate(of_row, 1):
            places = order[row, batch.pieces[row].numpy() == number]
            assert sorted(places[places > 0]) == list(range(1, share + 1))
    assert not order[batch.pieces.numpy() == 0].any()


def test_a_row_has_a_target_and_a_target_has_something_to_read(vocabulary: Vocabulary) -> None:
    short = rows_of(vocabulary, ([3],), length=4)
    assert drawn(vocabulary, short, 0.15, 0)[0].tolist() == [[0, 1, 0, 0]]
    plain = replace(
        short, ids=torch.full((1, 4), 7), pieces=torch.tensor([[1, 1, 1, 2]])
    )  # no special tokens
    order, _, answers = drawn(vocabulary, plain, 1.0, 0)
    assert sorted(order[0, :3]) == [0, 1, 2] and order[0, 3] == 0 and (answers != NONE).sum() == 2


def test_draws_depend_on_the_seed_and_the_row_alone(vocabulary: Vocabulary) -> None:
    batch = rows_of(vocabulary, ([30, 30],) * 6, length=64)
    whole, again, other = (drawn(vocabulary, batch, 0.3, seed) for seed in (1, 1, 2))
    assert all((one == two).all() for one, two in zip(whole, again, strict=True))
    assert not (whole[0] == other[0]).all() and not (whole[0][0] == whole[0][1]).all()
    for row in range(6):
        alone = drawn(
            vocabulary,
            TokenBatch(batch.ids[row : row + 1], batch.pieces[row : row + 1], batch.positions),
            0.3,
            1,
            first=row,
        )
        assert all((one[0] == two[row]).all() for one, two in zip(alone, whole, strict=True))


def test_all_orders_are_equally_likely(vocabulary: Vocabulary) -> None:
    batch = rows_of(vocabulary, ([6],) * 6000, length=6)
    order, _, _ = drawn(vocabulary, batch, 0.5, 3)
    _, counts = np.unique(order[:, 1:5], axis=0, return_counts=True)
    assert (
        len(counts) == 12 and abs(counts - 500).max() < 100
    )  # two targets of four tokens, both ways round; 4.7 deviations


def test_an_encoder_without_two_streams_is_refused(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ENCODERS.get("modern"), "two_streams")
    with pytest.raises(RecipeError, match="two_streams"):
        made(vocabulary, "modern")
