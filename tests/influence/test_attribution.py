"""Attributions of training texts on a prediction: against autograd, against real steps, and on copies of
the text asked about.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.influence.attribution import ExampleAttribution, PassageAttribution, Products
from tasklm.influence.evidence import Attributions
from tasklm.influence.explanation import ExampleSide
from tasklm.influence.gradients import chosen_layers
from tasklm.models.task_model import LoadedModels, TaskModel, new_encoder
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Train
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tests.conftest import labelled, sentences
from tests.encoders.samples import KINDS, stir

MACHINE = Machine(torch.device("cpu"), False, 1)
LENGTH = 24


def examples_of(rows: list[tuple[str, str]]) -> list[Example]:
    return [
        Example((text,), label, "train.csv", line) for line, (text, label) in enumerate(rows, 2)
    ]


def encoded(examples: list[Example], task: Classify, vocabulary: Vocabulary) -> EncodedExamples:
    return EncodedExamples.of(task, examples, vocabulary, LENGTH)


def model_of(kind: str, vocabulary: Vocabulary, task: Classify) -> TaskModel:
    torch.manual_seed(0)
    name, shape = KINDS[kind]
    shape = dataclasses.replace(shape, vocabulary=len(vocabulary), layers=2)
    encoder = new_encoder(name, shape)
    model = TaskModel(encoder, task.head(shape.width, 0.0, encoder.normed_heads))
    stir(model)
    return model.eval()


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_products_and_lengths_are_those_of_autograd(kind: str, vocabulary: Vocabulary) -> None:
    task = Classify(["a", "b", "c"])
    rows = [(text, "abc"[i % 3]) for i, text in enumerate(sentences(9, 3))]
    asked, train = (encoded(examples_of(some), task, vocabulary) for some in (rows[:2], rows[2:]))
    model = model_of(kind, vocabulary, task)
    found = ExampleAttribution(model, task, MACHINE).products(asked, train)
    weights = [
        weight
        for layer in [*chosen_layers(model.encoder, "last"), model.head]
        for weight in layer.parameters()
    ]
    model.requires_grad_(True)

    def gradients(examples: EncodedExamples) -> torch.Tensor:
        made = []
        for number in range(len(examples)):
            batch = examples.padded(np.array([number]))
            assert batch.targets is not None
            parts = torch.autograd.grad(task.loss(model(batch), batch.targets), weights)
            made.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(made)

    ours, theirs = gradients(asked), gradients(train)
    expected = (theirs @ ours.T).numpy()
    np.testing.assert_allclose(
        found.products, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )
    np.testing.assert_allclose(found.lengths, theirs.norm(dim=1).numpy(), rtol=1e-4)
    np.testing.assert_allclose(found.query_lengths, ours.norm(dim=1).numpy(), rtol=1e-4)
    expected = torch.nn.functional.cosine_similarity(theirs[:, None], ours[None], dim=2).numpy()
    np.testing.assert_allclose(found.cosines(), expected, rtol=1e-3, atol=1e-5)


def side_of(rows: list[tuple[str, str]], vocabulary: Vocabulary) -> ExampleSide:
    task = Classify(["no", "yes"])
    network = model_of("bert", vocabulary, task)
    loaded = LoadedModels(task, vocabulary, {"length": LENGTH}, None, [network])
    return ExampleSide(loaded, MACHINE, examples_of(rows))


def explained(side: ExampleSide, text: str, top: int, most: int = 1000) -> tuple[str, Attributions]:
    asked, (answer,) = side.predicted([text])
    (found,) = side.attributions([text], asked, top, most)
    return str(answer["label"]), found


def test_copies_with_the_label_support_it_most_and_those_with_the_other_oppose_it_most(
    vocabulary: Vocabulary,
) -> None:
    text, *others = sentences(30, 4)
    rows = [(other, "no" if i % 2 else "yes") for i, other in enumerate(others)]
    rows[7], rows[20] = (text, "yes"), (text, "no")
    label, found = explained(side_of(rows, vocabulary), text, 3)
    same, other = found.supporting[0], found.opposing[0]
    assert (same.text, same.label) == (text, label) and (other.text, other.label) == (
        text,
        {"no": "yes", "yes": "no"}[label],
    )
    assert same.score == pytest.approx(1.0, abs=1e-5) and other.score == pytest.approx(
        -1.0, abs=1e-5
    )
    assert same.where == f"train.csv, line {9 if label == 'yes' else 22}"
    assert found.supporting[1].score < 0.999 and len(found.supporting) == len(found.opposing) == 3
    assert [attribution.score for attribution in found.supporting] == sorted(
        (attribution.score for attribution in found.supporting), reverse=True
    )
    assert [attribution.score for attribution in found.opposing] == sorted(
        attribution.score for attribution in found.opposing
    )
    assert all(attribution.product > 0 for attribution in found.supporting) and all(
        attribution.product < 0 for attribution in found.opposing
    )
    assert (found.compared, found.in_all) == (29, 29)


def test_only_the_examples_that_share_the_rarest_words_are_compared(vocabulary: Vocabulary) -> None:
    rows = [
        ("the dog sees music", "yes"),
        ("the cat", "no"),
        ("cold water", "yes"),
        ("the bird sees music", "no"),
    ]
    _, found = explained(side_of(rows, vocabulary), "the dog hears music", 5, most=2)
    shown = {
        attribution.text: attribution.shared for attribution in (*found.supporting, *found.opposing)
    }
    assert shown == {
        "the dog sees music": ["dog", "music", "the"],
        "the bird sees music": ["music", "the"],
    }
    assert (found.compared, found.in_all) == (2, 4)


def test_several_texts_at_once_get_what_each_gets_alone(vocabulary: Vocabulary) -> None:
    text, second, *others = sentences(20, 6)
    side = side_of(
        [(other, "no" if i % 3 else "yes") for i, other in enumerate(others)], vocabulary
    )
    asked, _ = side.predicted([text, second])
    both = side.attributions([text, second], asked, 4)
    for one, found in zip((text, second), both, strict=True):
        _, alone = explained(side, one, 4)
        assert [attribution.text for attribution in found.supporting] == [
            attribution.text for attribution in alone.supporting
        ]
        np.testing.assert_allclose(
            [p.score for p in found.opposing],
            [p.score for p in alone.opposing],
            rtol=1e-4,
        )


@pytest.fixture(scope="module", params=["mlm", "electra", "electra-two-stage", "permutation"])
def run(
    request: pytest.FixtureRequest, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with a short stage 1."""
    out = tmp_path_factory.mktemp("runs")
    (out / "stage1").mkdir()
    write_shards(out / "stage1", [sentences(60, 1)], vocabulary)
    examples = examples_of([(str(row["text"]), str(row["label"])) for row in labelled(40, 1)])
    task = Classify.from_examples(examples, Kind())
    shape = dataclasses.replace(KINDS["bert"][1], vocabulary=len(vocabulary), layers=2, dropout=0.0)
    own = encoded(examples, task, vocabulary)
    parts = TrainingContext(
        "bert", shape, task, vocabulary, own, own, Shards.open(out / "stage1"), LENGTH, MACHINE
    )
    settings = Train(objective=request.param, learning_rate=3e-3)
    run_stage1(
        out / "stage1",
        parts,
        settings,
        Stage1Plan(steps=12, rho1=2, batch=8, seconds_allowed=None),
        SILENT,
    )
    return out


def test_a_step_on_a_passage_changes_the_loss_as_its_product_says(
    run: Path, vocabulary: Vocabulary
) -> None:
    task = Classify(["no", "yes"])
    asked = encoded(
        examples_of([("the cat likes cold water .", "yes"), ("a dog sees music .", "no")]),
        task,
        vocabulary,
    )
    passages = [*sentences(4, 9), " ".join(sentences(5, 10)), ""]  # the fifth is longer than a row
    made = PassageAttribution(run, task, torch.device("cpu"))
    found = made.products(asked, passages)
    assert (
        (found.products[5] == 0).all()
        and (found.cosines()[5] == 0).all()
        and (np.abs(found.cosines()[:5]) <= 1).all()
    )
    expected = np.array(
        [[fall(made, asked, number, passage) for number in range(2)] for passage in passages[:5]]
    )
    np.testing.assert_allclose(
        found.products[:5], expected, rtol=0.05, atol=0.02 * np.abs(expected).max()
    )
    assert np.linalg.norm(found.products[:5]) > 0


def fall(
    made: PassageAttribution, asked: EncodedExamples, number: int, passage: str, rate: float = 0.02
) -> float:
    """How a small step of SGD on a passage lowers the task's loss at an example, per length of the
    step, from both sides.
    """
    before = [weight.detach().clone() for weight in made.weights]
    (tokens,) = made.vocabulary.encode([passage])
    gradients: Any = torch.autograd.grad(
        made.language_loss(tokens), made.weights, allow_unused=True
    )
    losses = []
    with torch.no_grad():
        for step in (-rate, rate):
            for weight, value, gradient in zip(made.weights, before, gradients, strict=True):
                weight.copy_(value if gradient is None else value - step * gradient)
            losses.append(float(made._task_loss(asked, number)))
        for weight, value in zip(made.weights, before, strict=True):
            weight.copy_(value)
    return (losses[0] - losses[1]) / (2 * rate)


def test_a_query_whose_gradient_is_rounding_alone_points_nowhere() -> None:
    lengths, query_lengths = np.array([1.0, 2.0]), np.array([1.0, 1e-8])
    products = Products(np.outer(lengths, query_lengths), lengths, query_lengths)
    np.testing.assert_array_equal(products.cosines(), [[1.0, 0.0], [1.0, 0.0]])
