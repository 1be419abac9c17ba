"""What contestants are made of: bags of tokens, linear layers, by hand and against scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tasklm.contestants.hashed import HashedTokens, features, word_features
from tasklm.contestants.parts.bags import (
    FIRST,
    PARTS,
    bags_in,
    bags_of,
    count_bags,
    encoded,
    side_by_side,
)
from tasklm.contestants.parts.encoded import evenly_within, reads_words, tuned_score, width_of
from tasklm.contestants.parts.linear_head import LinearHead, Vectors, best_head, fit
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example

CLASSES = [Example((text,), label) for text, label in (("a b", "x"), ("c", "y"), ("a c", "z"))]


class Letters:
    """A letter is a token."""

    cls, sep, unk = 1, 2, 0

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[FIRST + ord(one) - ord("a") for one in text if one.isalpha()] for text in texts]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        raise NotImplementedError


def task_of(kind: str, examples: list[Example]) -> Task:
    return TASKS.get(kind).from_examples(examples, Kind())


def letters(bags: tuple[list[int], ...]) -> list[str]:
    return ["".join(chr(ord("a") + token - FIRST) for token in bag) for bag in bags]


def bags(task: Task, examples: list[Example]) -> list[list[str]]:
    units = encoded(task, examples, Letters()).units
    return [letters(one) for one in bags_of(units, count_bags(task, units))]


def test_a_text_is_a_bag_and_a_pair_is_two() -> None:
    assert bags(task_of("classify", CLASSES), CLASSES) == [["ab"], ["c"], ["ac"]]
    pairs = [Example(("ab", "cd e"), 1.0), Example(("f", ""), 2.0)]
    assert bags(task_of("regress", pairs), pairs) == [["ab", "cde"], ["f", ""]]


def test_an_option_stands_beside_the_text_with_its_question() -> None:
    example = Example(("abc", "q", "x", "yz"), 1, options=("x", "yz"))
    assert bags(task_of("choice", [example]), [example]) == [["abc", "qx"], ["abc", "qyz"]]


def test_a_word_stands_between_its_neighbours() -> None:
    example = Example(("ab c de",), ["O", "B-X", "O"], words=("ab", "c", "de"))
    task = task_of("tag", [example])
    assert reads_words(task)
    assert bags(task, [example]) == [["", "ab", "c"], ["ab", "c", "de"], ["c", "de", ""]]


def test_vectors_of_a_pair_have_difference_and_product_and_all_are_of_one_length() -> None:
    one, other = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[0.0, 2.0], [1.0, 0.0]])
    rows = side_by_side([one, other])
    root = 2**0.5
    first, second = np.array([0.6, 0.8]) * root, np.array([0.0, 1.0]) * root
    wanted = np.concatenate([first, second, np.abs(first - second), first * second])
    np.testing.assert_allclose(rows[0], wanted, rtol=1e-6)
    assert not rows[1, :2].any() and rows.shape == (2, 2 * PARTS[2])
    assert [bags_in(parts) for parts in PARTS.values()] == list(PARTS)


def test_a_word_is_hashed_with_its_capitals_and_without_and_a_text_with_its_pairs() -> None:
    assert len(features("One two one")) == 5 and features("") == [0]
    assert features("ONE two") == features("one two")
    assert word_features("Ada") != word_features("ada") and len(word_features("ada")) == 3
    assert HashedTokens(True).encode(["ada"]) == [[FIRST + one for one in word_features("ada")]]


def test_examples_are_thinned_evenly_by_their_places() -> None:
    task = task_of("classify", CLASSES)
    own = encoded(task, CLASSES * 4, Letters())
    assert evenly_within(own, 12) == list(range(12)) and evenly_within(own, 4) == [0, 3, 6, 9]
    assert evenly_within(own, 0) == [0]


@pytest.fixture
def blobs() -> tuple[Task, list[Example], np.ndarray]:
    """Vectors of three classes that overlap."""
    draw = np.random.default_rng(3)
    classes = draw.integers(3, size=150)
    vectors = draw.normal(size=(150, 5)) + np.eye(5)[classes]
    examples = [Example(("a",), "xyz"[one]) for one in classes.tolist()]
    return task_of("classify", examples), examples, vectors.astype(np.float32)


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_the_layer_of_classes_is_logistic_regression(
    blobs: tuple[Task, list[Example], np.ndarray], strength: float
) -> None:
    task, examples, vectors = blobs
    own = encoded(task, examples, Letters())
    weights, offsets = fit(task, torch.from_numpy(vectors), own.targets(), strength)
    theirs = LogisticRegression(C=strength, tol=1e-8, max_iter=5000)
    theirs.fit(vectors, [example.label for example in examples])
    ours = torch.softmax(torch.from_numpy(vectors) @ weights + offsets, 1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(vectors), atol=2e-3)


def test_the_layer_of_labels_is_a_logistic_regression_for_each() -> None:
    draw = np.random.default_rng(5)
    vectors = draw.normal(size=(200, 4)).astype(np.float32)
    marks = vectors[:, :2] + draw.normal(size=(200, 2)) > 0
    examples = [
        Example(("a",), tuple(name for name, one in zip("xy", row, strict=True) if one))
        for row in marks
    ]
    task = task_of("multilabel", examples)
    own = encoded(task, examples, Letters())
    weights, offsets = fit(task, torch.from_numpy(vectors), own.targets(), 1.0)
    for column in range(2):
        theirs = LogisticRegression(C=1.0, tol=1e-8).fit(vectors, marks[:, column])
        np.testing.assert_allclose(weights[:, column], theirs.coef_[0], atol=5e-3)
        np.testing.assert_allclose(offsets[column], theirs.intercept_[0], atol=5e-3)


def test_dev_chooses_the_strength_and_a_saved_layer_is_the_same(
    blobs: tuple[Task, list[Example], np.ndarray], tmp_path: Path
) -> None:
    task, examples, vectors = blobs
    train = Vectors(encoded(task, examples[:100], Letters()), vectors[:100])
    dev = Vectors(encoded(task, examples[100:], Letters()), vectors[100:])
    chosen = best_head(task, "accuracy", train, dev, float("inf"))
    middle = torch.from_numpy(vectors[:100].mean(0))
    scores = []
    for power in range(-4, 4):
        centred = torch.from_numpy(vectors[:100]) - middle
        head = LinearHead(*fit(task, centred, train.encoded.targets(), 10.0**power), middle)
        scores.append(tuned_score(task, "accuracy", dev.encoded, head.outputs(dev.rows))[0])
    assert chosen.dev == pytest.approx(max(scores), abs=0.021)  # one example, by rounding
    chosen.head.save(tmp_path)
    again = LinearHead.load(tmp_path).outputs(vectors)
    assert np.array_equal(again, chosen.head.outputs(vectors)) and width_of(task) == 3


def test_no_strength_is_begun_when_the_time_is_up(
    blobs: tuple[Task, list[Example], np.ndarray],
) -> None:
    task, examples, vectors = blobs
    own = Vectors(encoded(task, examples, Letters()), vectors)
    assert best_head(task, "accuracy", own, own, 0.0).setting == "strength 0.0001"
