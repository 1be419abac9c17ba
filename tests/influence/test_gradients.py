"""Products of gradients of single examples, against autograd and against real steps of training."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.device.machine import Machine
from tasklm.encoders.initial_weights import draw_encoder
from tasklm.errors import RecipeError
from tasklm.influence.gradients import ProjectedGradients, Watch, chosen_layers
from tasklm.influence.scores import Influence, Pieces, masked, projection_for
from tasklm.models.task_model import new_encoder
from tasklm.objectives.base import Corrupted
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.recipe.data_sections import Select
from tasklm.recipe.model_sections import Train
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.masking import NONE
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.stage1 import JointModel
from tasklm.train.steps import step_seed
from tests.conftest import labelled, sentences
from tests.encoders.samples import KINDS, stir
from tests.samples import encoded_texts

MACHINE = Machine(torch.device("cpu"), False, 1)
TASK = Classify(["no", "yes"])
LENGTH = 16


def joint(kind: str, vocabulary: Vocabulary, spread: float = 0.2) -> JointModel:
    """A joint model whose weights are nowhere neutral."""
    torch.manual_seed(0)
    name, shape = KINDS[kind]
    shape = dataclasses.replace(shape, vocabulary=len(vocabulary), layers=3)
    objective = MaskedLanguageModel(name, shape, vocabulary, Train())
    encoder = new_encoder(name, shape)
    model = JointModel(encoder, objective, TASK.head(shape.width, 0.0, encoder.normed_heads), TASK)
    stir(model, spread)
    return model.eval()


def shards_of(texts: list[str], vocabulary: Vocabulary) -> Shards:
    encoded = vocabulary.encode(texts)
    return Shards(
        np.concatenate([np.array(row, np.uint16) for row in encoded]),
        np.cumsum([0, *map(len, encoded)]),
    )


def examples_of(count: int, vocabulary: Vocabulary, seed: int = 5) -> EncodedExamples:
    rows = labelled(count, seed)
    return EncodedExamples.of(
        TASK, [Example((str(row["text"]),), row["label"]) for row in rows], vocabulary, LENGTH
    )


def texts_of(count: int) -> list[str]:
    """Returns passages of one to four sentences: some are longer than a row of LENGTH tokens."""
    lines = sentences(4 * count, 7)
    return [" ".join(lines[4 * i : 4 * i + 1 + i % 4]) for i in range(count)]


def scorer(
    model: JointModel,
    vocabulary: Vocabulary,
    texts: list[str],
    examples: EncodedExamples,
    **keys: Any,
) -> Influence:
    projection = keys.pop("projection", 0)
    settings = dataclasses.replace(
        Select(), **{f"influence_{name}": value for name, value in keys.items()}
    )
    pieces = Pieces(
        shards_of(texts, vocabulary), vocabulary, LENGTH, settings.influence_batch, tokens=200
    )
    return Influence(model, pieces, examples, settings, projection, MACHINE)


def flat_gradient(loss: Tensor, layers: list[torch.nn.Module]) -> Tensor:
    found = torch.autograd.grad(
        loss, [parameter for layer in layers for parameter in layer.parameters()]
    )
    return torch.cat([part.flatten() for part in found])


def rows_and_masks(made: Influence, texts: int) -> list[tuple[TokenBatch, list[Corrupted]]]:
    """Each passage's rows by themselves, in the order of the passages, with the masks that the
    scorer draws.
    """
    found = {}
    for place in range(len(made.pieces)):
        (rows,) = made.pieces.batches(place, place + 1)
        draws = [
            masked(made.model.objective, rows.batch, step_seed(made.seed, draw), rows.first)
            for draw in range(made.draws)
        ]
        found[int(made.pieces.order[place])] = rows.batch, draws
    return [found[unit] for unit in range(len(found))]


def passage_loss(model: Any, text: Corrupted) -> Tensor:
    """The mean over all masked tokens of a passage, by the objective's own forward pass."""
    return model.objective(model.encoder, text)["lm"] / int((text.answers != NONE).sum())


def by_autograd(
    made: Influence, model: JointModel, examples: EncodedExamples, layers: str, texts: int
) -> np.ndarray:
    chosen = chosen_layers(model.encoder, layers)
    if "embeddings" in layers:
        chosen.append(model.encoder.token)
    model.requires_grad_(True)
    passages = [
        sum(flat_gradient(passage_loss(model, text), chosen) for text in draws) / len(draws)
        for _, draws in rows_and_masks(made, texts)
    ]
    task = [
        flat_gradient(model.task_loss(examples.padded(np.array([i]))), chosen)
        for i in range(len(examples))
    ]
    model.requires_grad_(False)
    return (torch.stack(passages) @ torch.stack(task).T).numpy()


def in_order(made: Influence) -> np.ndarray:
    """All scores in the order of the units."""
    found = np.empty((len(made.pieces), made.task_batches), np.float32)
    found[made.pieces.order] = made.scores(0, len(made.pieces))
    return found


@pytest.mark.parametrize(
    ("kind", "layers", "draws"),
    [
        ("bert", "last", 1),
        ("bert", "1,3", 2),
        ("modern", "last", 1),
        ("modern", "all", 1),
        ("albert", "last", 2),
        ("bert", "embeddings", 2),
        ("modern", "embeddings", 1),
        ("albert", "embeddings", 1),
        ("bert", "embeddings,2", 1),
    ],
)
def test_products_are_those_of_autograd_for_every_encoder(
    kind: str, layers: str, draws: int, vocabulary: Vocabulary
) -> None:
    model, texts, examples = joint(kind, vocabulary), texts_of(11), examples_of(7, vocabulary)
    made = scorer(model, vocabulary, texts, examples, layers=layers, draws=draws)
    assert made.pieces.counts.max() > 1  # some passages are cut into rows
    expected = by_autograd(made, model, examples, layers, len(texts))
    np.testing.assert_allclose(
        in_order(made), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize("layers", ["last", "embeddings"])
def test_passages_and_examples_that_share_a_gradient_have_the_mean_of_theirs(
    vocabulary: Vocabulary, layers: str
) -> None:
    model, texts, examples = joint("bert", vocabulary), texts_of(11), examples_of(7, vocabulary)
    alone = in_order(scorer(model, vocabulary, texts, examples, layers=layers))
    shared = scorer(model, vocabulary, texts, examples, layers=layers, task_batch=3)
    np.testing.assert_allclose(
        in_order(shared),
        np.stack([alone[:, i : i + 3].mean(1) for i in (0, 3, 6)], 1),
        rtol=1e-5,
        atol=1e-5,
    )
    made = scorer(model, vocabulary, texts, examples, batch=4)
    assert len(made.pieces) == 3
    grouped = in_order(made)
    model.requires_grad_(True)
    chosen = chosen_layers(model.encoder, "last")
    task = torch.stack(
        [flat_gradient(model.task_loss(examples.padded(np.array([i]))), chosen) for i in range(7)]
    )
    for place, unit in enumerate(made.pieces.order):
        (rows,) = made.pieces.batches(place, place + 1)
        text = masked(model.objective, rows.batch, step_seed(made.seed, 0), rows.first)
        losses = [
            passage_loss(model, _some(text, rows.passages == number))
            for number in range(rows.passages.max() + 1)
        ]
        expected = flat_gradient(sum(losses) / len(losses), chosen) @ task.T  # type: ignore[arg-type]
        np.testing.assert_allclose(
            grouped[unit], expected.numpy(), rtol=1e-5, atol=1e-5 * float(expected.abs().max())
        )


def _some(text: Corrupted, rows: np.ndarray) -> Corrupted:
    some = torch.from_numpy(rows)
    batch = TokenBatch(text.batch.ids[some], text.batch.pieces[some], text.batch.positions[some])
    return Corrupted(batch, text.picked[some], text.answers[some])


def test_scores_do_not_depend_on_how_passages_are_batched(vocabulary: Vocabulary) -> None:
    model, texts, examples = joint("bert", vocabulary), texts_of(11), examples_of(5, vocabulary)
    made = scorer(model, vocabulary, texts, examples)
    whole = made.scores(0, 11)
    parts = np.concatenate([made.scores(0, 4), made.scores(4, 5), made.scores(5, 11)])
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-5)
    made.pieces.tokens = 1  # every passage by itself
    np.testing.assert_allclose(made.scores(0, 11), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", ["last", "all"])
def test_the_estimate_ranks_passages_as_real_steps_do(layers: str, vocabulary: Vocabulary) -> None:
    """Eq. 6 of ISS: the fall of the task's loss after a small step of SGD on the passage, by the
    chosen layers' weights.
    """
    model = joint("bert", vocabulary, spread=0.1)
    texts = texts_of(30)
    examples = examples_of(12, vocabulary)
    made = scorer(model, vocabulary, texts, examples, layers=layers, task_batch=12)
    estimate = in_order(made)[:, 0]
    chosen = [
        parameter
        for layer in chosen_layers(model.encoder, layers)
        for parameter in layer.parameters()
    ]
    everything = examples.padded(np.arange(12))
    model.requires_grad_(True)
    falls = []
    for _, (text,) in rows_and_masks(made, len(texts)):
        before = [parameter.detach().clone() for parameter in chosen]
        with torch.no_grad():
            start = float(model.task_loss(everything)) / 12
        gradients = torch.autograd.grad(passage_loss(model, text), chosen)
        with torch.no_grad():
            for parameter, gradient in zip(chosen, gradients, strict=True):
                parameter -= 1e-3 * gradient
            falls.append(start - float(model.task_loss(everything)) / 12)
            for parameter, value in zip(chosen, before, strict=True):
                parameter.copy_(value)
    ranks = [np.argsort(np.argsort(values)) for values in (estimate, np.array(falls))]
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] > 0.9  # Spearman
    np.testing.assert_allclose(
        np.array(falls) / 1e-3, estimate, rtol=0.1, atol=0.1 * np.abs(estimate).max()
    )


def test_projected_products_are_unbiased_and_better_with_size(vocabulary: Vocabulary) -> None:
    model, texts, examples = joint("bert", vocabulary), texts_of(6), examples_of(4, vocabulary)
    made = scorer(model, vocabulary, texts, examples)
    exact, errors, means = in_order(made), {}, {}
    for size in (4, 16):
        found = []
        for seed in range(60):
            made.projected = ProjectedGradients(made.watch.parts, size, seed)
            made.task = made._task_side(examples, 1)
            found.append(in_order(made))
        stacked = np.stack(found)
        errors[size] = np.sqrt(((stacked - exact) ** 2).mean())
        means[size] = np.abs(stacked.mean(0) - exact) / (stacked.std(0) / np.sqrt(len(stacked)))
    assert all(
        np.quantile(mean, 0.95) < 3.5 for mean in means.values()
    )  # off by a few standard errors of the mean at most
    assert errors[16] < 0.6 * errors[4]
    made.projected = ProjectedGradients(
        made.watch.parts, 1000, 1
    )  # wider than any side: nothing is projected
    made.task = made._task_side(examples, 1)
    np.testing.assert_allclose(in_order(made), exact, rtol=1e-5, atol=1e-5)


def test_the_recipe_or_memory_decides_about_projection(vocabulary: Vocabulary) -> None:
    shape = dataclasses.replace(KINDS["bert"][1], layers=3)
    one = sum(
        parameter.numel() for parameter in joint("bert", vocabulary).encoder.layers[-1].parameters()
    )
    assert projection_for(Select(), "bert", shape, 10, 40 * one) == 0
    assert projection_for(Select(), "bert", shape, 11, 40 * one) == 64
    assert projection_for(Select(influence_layers="all"), "bert", shape, 1, 1 << 30) == 64
    assert projection_for(Select(influence_projection=8), "bert", shape, 1, 1 << 30) == 8
    with pytest.raises(RecipeError, match=r"set select\.influence_projection to auto"):
        projection_for(Select(influence_projection=0), "bert", shape, 11, 40 * one)
    with pytest.raises(RecipeError, match=r"lower select\.influence_projection"):
        projection_for(Select(), "bert", shape, 1_000_000, 40 * one)
    table, room = Select(influence_layers="embeddings"), 4 * 10 * shape.positions * shape.width
    assert projection_for(table, "bert", shape, 10, room) == 0
    with pytest.raises(RecipeError, match="gradients of the embeddings may take"):
        projection_for(table, "bert", shape, 11, room)
    for wrong in ("4", "0", "first", "1,x", ""):
        with pytest.raises(RecipeError, match="the layers 1 to 3"):
            projection_for(Select(influence_layers=wrong), "bert", shape, 1, 1 << 30)


def test_shared_layers_are_one_layer(vocabulary: Vocabulary) -> None:
    encoder: Any = joint("albert", vocabulary).encoder
    assert chosen_layers(encoder, "all") == chosen_layers(encoder, "1,3") == [encoder.shared]
    assert (
        sum(
            isinstance(module, torch.nn.Linear) for module in Watch([encoder.shared]).parts.values()
        )
        == 4
    )


def test_watching_leaves_no_trace(vocabulary: Vocabulary) -> None:
    model, examples = joint("bert", vocabulary), examples_of(3, vocabulary)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scorer(model, vocabulary, texts_of(3), examples).scores(0, 3)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


class WordsOfAClass(torch.nn.Module):
    """A head that reads the class off the language model: which class's words does it expect at the
    first token?
    """

    def __init__(self, model: JointModel, words: list[list[int]]) -> None:
        super().__init__()
        self.logits = lambda first: model.objective.logits(first, model.encoder.token)  # type: ignore[operator]
        self.words = words

    def forward(self, first: Tensor) -> Tensor:
        logits = self.logits(first).log_softmax(-1)
        return torch.stack([logits[..., words].logsumexp(-1) for words in self.words], -1)


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_passages_in_the_words_of_a_class_help_the_examples_of_that_class(
    kind: str, vocabulary: Vocabulary
) -> None:
    animals, things = ["cat", "dog", "bird"], ["ball", "field", "road"]
    words = [[int(number) for (number,) in vocabulary.encode(some)] for some in (animals, things)]
    model = joint(kind, vocabulary)
    draw_encoder(model.encoder, model.encoder.shape)  # type: ignore[arg-type]
    model.head = WordsOfAClass(model, words)
    texts = [" ".join((some * 4)[i : i + 8]) for some in (animals, things) for i in range(3)]
    examples = encoded_texts([("number",), ("the",)] * 2, vocabulary, LENGTH, [0, 0, 1, 1])
    found = in_order(scorer(model, vocabulary, texts, examples, draws=30))
    by_class = found.reshape(2, 3, 2, 2).mean(
        (1, 3)
    )  # (class of the passages, class of the examples)
    assert by_class[0, 0] > 0 > by_class[1, 0] and by_class[1, 1] > 0 > by_class[0, 1]


def test_scores_in_bf16_are_near_those_in_fp32(vocabulary: Vocabulary) -> None:
    model, texts, examples = joint("bert", vocabulary), texts_of(11), examples_of(7, vocabulary)
    exact = in_order(scorer(model, vocabulary, texts, examples))
    made = scorer(model, vocabulary, texts, examples)
    made.machine = dataclasses.replace(MACHINE, bf16=True)
    made.task = made._task_side(examples, 1)
    found = in_order(made)
    assert not np.array_equal(found, exact)
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
