from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.objectives.base import Corrupted
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary

Parts = tuple[Encoder, MaskedLanguageModel]


def rows(vocabulary: Vocabulary, count: int, length: int) -> TokenBatch:
    ids = torch.randint(5, len(vocabulary), (count, length))
    ids[:, 0], ids[:, -1] = vocabulary.cls, vocabulary.sep
    return TokenBatch(ids, torch.ones_like(ids), torch.arange(length).expand_as(ids).clone())


@pytest.fixture(params=["bert", "albert", "modern"])
def parts(request: pytest.FixtureRequest, vocabulary: Vocabulary) -> Parts:
    torch.manual_seed(0)
    shape = Shape(
        len(vocabulary) + 12, 2, 32, 4, 64, 64, embedding=16 if request.param == "albert" else 0
    )
    return ENCODERS.get(request.param)(shape), MaskedLanguageModel(
        request.param, shape, vocabulary, Train()
    )


@pytest.fixture
def objective(vocabulary: Vocabulary) -> MaskedLanguageModel:
    return MaskedLanguageModel(
        "bert", Shape(len(vocabulary) + 12, 2, 32, 4, 64, 64), vocabulary, Train()
    )


def asked_of(corrupted: Corrupted) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns rows, columns and answers of all targets."""
    row, place = (corrupted.answers != NONE).nonzero(as_tuple=True)
    return row, corrupted.picked[row, place], corrupted.answers[row, place]


def test_rates_are_berts(objective: MaskedLanguageModel, vocabulary: Vocabulary) -> None:
    batch = rows(vocabulary, 400, 64)
    corrupted = objective.corrupt(batch, 0)
    row, column, answers = asked_of(corrupted)
    assert corrupted.targets() == len(answers) == 400 * round(0.15 * 62)
    shown = corrupted.batch.ids[row, column]
    assert abs(float((shown == vocabulary.mask).float().mean()) - 0.8) < 0.02
    assert abs(float((shown == answers).float().mean()) - 0.1) < 0.02
    assert int(shown.max()) < len(vocabulary)  # none of the rows that only fill up the embedding
    assert torch.equal(answers, batch.ids[row, column])
    untouched = torch.ones(400, 64, dtype=torch.bool)
    untouched[row, column] = False
    assert torch.equal(corrupted.batch.ids[untouched], batch.ids[untouched])
    assert not bool(torch.isin(answers, torch.tensor(vocabulary.specials)).any())


def test_hidden_by_masks_alone(vocabulary: Vocabulary) -> None:
    shape, batch = Shape(len(vocabulary) + 12, 2, 32, 4, 64, 64), rows(vocabulary, 40, 64)
    always = MaskedLanguageModel("bert", shape, vocabulary, Train(hide="mask")).corrupt(batch, 3)
    row, column, answers = asked_of(always)
    assert (always.batch.ids[row, column] == vocabulary.mask).all() and torch.equal(
        answers, batch.ids[row, column]
    )
    as_bert = MaskedLanguageModel("bert", shape, vocabulary, Train()).corrupt(batch, 3)
    assert torch.equal(as_bert.picked, always.picked) and torch.equal(
        as_bert.answers, always.answers
    )


def test_whole_words_are_hidden_or_not_at_all(vocabulary: Vocabulary) -> None:
    shape = Shape(len(vocabulary) + 12, 2, 32, 4, 64, 64)
    continues = vocabulary.continuing()
    assert 10 < continues.sum() < len(vocabulary) - 20 and not continues[vocabulary.specials].any()
    batch = rows(vocabulary, 60, 64)
    corrupted = MaskedLanguageModel(
        "bert", shape, vocabulary, Train(whole_words=True, hide="mask")
    ).corrupt(batch, 3)
    hidden = (corrupted.batch.ids == vocabulary.mask).numpy()
    for row in range(60):
        tokens = batch.ids[row].tolist()
        columns = [column for column in range(64) if tokens[column] not in vocabulary.specials]
        words: list[list[int]] = []
        for column in columns:
            if words and words[-1][-1] == column - 1 and continues[tokens[column]]:
                words[-1].append(column)
            else:
                words.append([column])
        most = round(0.15 * len(columns))
        assert 0 < hidden[row].sum() <= most
        whole = [hidden[row][word].all() for word in words if hidden[row][word].any()]
        assert all(whole) or len(words) < 3
        shortest_left = min(len(word) for word in words if not hidden[row][word].any())
        assert hidden[row].sum() + shortest_left > most  # no other word would have fitted


def test_masks_are_drawn_afresh_and_repeat_with_the_seed(
    objective: MaskedLanguageModel, vocabulary: Vocabulary
) -> None:
    batch = rows(vocabulary, 4, 32)
    before, state = batch.ids.clone(), torch.get_rng_state()
    first, again, other = (objective.corrupt(batch, seed) for seed in (1, 1, 2))
    assert torch.equal(first.batch.ids, again.batch.ids) and torch.equal(first.picked, again.picked)
    assert not torch.equal(first.picked, other.picked)
    assert torch.equal(batch.ids, before) and torch.equal(
        torch.get_rng_state(), state
    )  # it runs beside the training


def test_the_tasks_targets_stay_out(objective: MaskedLanguageModel, vocabulary: Vocabulary) -> None:
    batch = rows(vocabulary, 2, 16)
    batch.targets = torch.tensor([0, 1])
    corrupted = objective.corrupt(batch, 0)
    assert corrupted.batch.targets is None and torch.equal(corrupted.batch.pieces, batch.pieces)


def with_padding(vocabulary: Vocabulary, count: int, length: int) -> TokenBatch:
    """Rows of different lengths, the first of [CLS] and [SEP] alone: it has nothing to predict."""
    batch = rows(vocabulary, count, length)
    for row in range(count):
        end = 2 + row * (length - 2) // (count - 1)
        batch.ids[row, end - 1] = vocabulary.sep
        batch.ids[row, end:], batch.pieces[row, end:], batch.positions[row, end:] = (
            vocabulary.pad,
            0,
            0,
        )
    return batch


def test_loss_equals_the_full_logits_computation(parts: Parts, vocabulary: Vocabulary) -> None:
    encoder, objective = parts
    corrupted = objective.corrupt(with_padding(vocabulary, 4, 32), 0)
    hidden = encoder(corrupted.batch)  # logits at every position, the rest ignored: the slow way
    raised = functional.gelu(objective.dense(hidden), approximate=encoder.gelu)
    logits = functional.linear(objective.norm(raised), encoder.token.weight, objective.bias)
    row, column, answers = asked_of(corrupted)
    assert int(row.min()) == 1  # the first row asks nothing
    labels = torch.full((4, 32), -100)
    labels[row, column] = answers
    wanted = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    torch.testing.assert_close(objective(encoder, corrupted)["lm"], wanted)


def test_a_compiled_graph_computes_the_same_from_one_shape(
    parts: Parts, vocabulary: Vocabulary
) -> None:
    encoder, objective = parts
    graphs: list[object] = []

    def counting(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph

    compiled = torch.compile(objective, backend=counting, fullgraph=True, dynamic=False)
    for seed, batch in enumerate((rows(vocabulary, 4, 32), with_padding(vocabulary, 4, 32))):
        corrupted = objective.corrupt(batch, seed)
        torch.testing.assert_close(compiled(encoder, corrupted), objective(encoder, corrupted))
    assert len(graphs) == 1  # though the second batch has fewer targets


def test_parts_keep_targets_and_loss(parts: Parts, vocabulary: Vocabulary) -> None:
    encoder, objective = parts
    corrupted = objective.corrupt(rows(vocabulary, 7, 32), 0)
    pieces = [corrupted.part(number, 3) for number in range(3)]
    assert [len(piece.batch.ids) for piece in pieces] == [3, 2, 2]
    assert sum(piece.targets() for piece in pieces) == corrupted.targets()
    torch.testing.assert_close(
        sum(objective(encoder, piece)["lm"] for piece in pieces),
        objective(encoder, corrupted)["lm"],
    )
    assert corrupted.part(7, 8).targets() == 0  # more parts than rows


def test_the_head_is_as_its_encoder_computes(vocabulary: Vocabulary) -> None:
    for name, epsilon, gelu in (
        ("bert", 1e-12, "none"),
        ("albert", 1e-12, "tanh"),
        ("modern", 1e-5, "none"),
    ):
        head = MaskedLanguageModel(
            name, Shape(400, 2, 32, 4, 64, 64, embedding=16), vocabulary, Train()
        )
        assert (head.norm.eps, head.gelu, head.dense.out_features) == (epsilon, gelu, 16)
