"""The vectors that a head reads, and their points in the plane."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.manifold import TSNE, trustworthiness

from tasklm.analysis.class_vectors import (
    FEWEST,
    MOST,
    TEXT,
    class_vectors,
    in_the_plane,
    vectors_of,
)
from tasklm.device.machine import Machine
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.models.task_model import TaskModel
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import STEPS_OF_PICTURES, labelled

HERE = Machine(torch.device("cpu"), False, 1)
LENGTH = 24


@pytest.fixture(autouse=True)
def _usual_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklm.analysis.class_vectors.STEPS", STEPS_OF_PICTURES)


def examples(count: int) -> list[Example]:
    return [Example((str(row["text"]),), row["label"]) for row in labelled(count, 4)]


def task_of(some: list[Example]) -> Task:
    return TASKS.get("classify").from_examples(some, Kind())


def encoder(vocabulary: Vocabulary, name: str = "bert") -> torch.nn.Module:
    torch.manual_seed(0)
    made: torch.nn.Module = ENCODERS.get(name)(Shape(len(vocabulary), 2, 32, 2, 48, LENGTH))
    return made


@pytest.mark.parametrize("name", ["bert", "modern"])
def test_vectors_are_what_the_head_is_given(name: str, vocabulary: Vocabulary) -> None:
    some = examples(20)
    task, own = task_of(some), encoder(vocabulary, name)
    encoded = EncodedExamples.of(task, some, vocabulary, LENGTH)
    found = vectors_of(own, encoded, HERE)
    head = task.head(32, 0.0)
    given: list[torch.Tensor] = []
    head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    model = TaskModel(own, head).eval()
    for number in range(len(some)):  # one by one, so that no row is padded by others
        with torch.inference_mode():
            model(encoded.padded(np.array([number])))
    np.testing.assert_allclose(found, torch.cat(given)[:, 0].numpy(), atol=1e-5)


def test_points_are_those_of_scikit_learn_and_the_same_each_time() -> None:
    draw = np.random.default_rng(0)
    vectors = np.concatenate([draw.normal(4 * group, 1, (20, 10)) for group in range(3)])
    points = in_the_plane(vectors)
    assert np.array_equal(points, in_the_plane(vectors))
    wanted = TSNE(2, perplexity=59 / 3, init="pca", random_state=0).fit_transform(vectors)
    assert trustworthiness(vectors, points, n_neighbors=5) == pytest.approx(
        trustworthiness(vectors, wanted, n_neighbors=5), abs=0.05
    )
    group = np.repeat(np.arange(3), 20)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.diag(np.full(60, np.inf))
    assert (group[apart.argmin(1)] == group).all()  # neighbours in the plane are of one group


def test_one_vector_for_all_is_one_point() -> None:
    assert not in_the_plane(np.ones((10, 4))).any()


def test_what_is_handed_on(vocabulary: Vocabulary) -> None:
    some = examples(30)
    some[3] = Example(("long " * 100,), "no")
    own = encoder(vocabulary)
    found = class_vectors(
        [("before", own), ("after", own)], task_of(some), some, vocabulary, LENGTH, HERE
    )
    assert found is not None and found["labels"] == ["no", "yes"]
    assert [found["labels"][number] for number in found["number"]] == [
        example.label for example in some
    ]
    assert (
        found["texts"][0] == some[0].text
        and len(found["texts"][3]) == TEXT
        and found["texts"][3].endswith("…")
    )
    assert [stage["name"] for stage in found["stages"]] == ["before", "after"]
    assert found["stages"][0]["points"] == found["stages"][1]["points"] and np.shape(
        found["stages"][0]["points"]
    ) == (30, 2)
    assert (
        class_vectors(
            [("before", own)], task_of(some), some[: FEWEST - 1], vocabulary, LENGTH, HERE
        )
        is None
    )


def test_many_examples_are_thinned_out_evenly(vocabulary: Vocabulary) -> None:
    some = [Example((f"number {number} .",), "ab"[number % 2]) for number in range(2 * MOST)]
    found = class_vectors([], task_of(some), some, vocabulary, LENGTH, HERE)
    assert found is not None and len(found["texts"]) == len(set(found["texts"])) == MOST
    assert found["texts"][0] == "number 0 ." and found["texts"][-1] == f"number {2 * MOST - 1} ."
