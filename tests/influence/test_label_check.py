"""Labels that the others speak against: products by hand and by brute force, another library's fit,
and flipped labels.
"""

from __future__ import annotations

import csv
import io
import math
import random

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from tasklm.influence.label_check import (
    Suspect,
    as_csv,
    features_of,
    fit_head,
    held_out,
    parts_of,
    runs_of_tokens,
    self_influences,
    spoken_against,
    suspects_of,
    weighted,
)
from tasklm.tasks.examples import Example


def drawn(count: int = 60, width: int = 5, classes: int = 3) -> tuple[csr_matrix, np.ndarray]:
    generator = np.random.default_rng(3)
    features = generator.normal(size=(count, width))
    return csr_matrix(features), (
        features[:, :classes] + generator.normal(size=(count, classes))
    ).argmax(1)


def test_one_example_by_hand() -> None:
    logits, targets = np.array([[math.log(3), 0.0]] * 2), np.array([0, 1])  # p = (3/4, 1/4)
    features = csr_matrix([[1.0, 2.0], [0.0, 3.0]])
    expected = math.log(4) - math.log(3), math.log(4)
    assert spoken_against(logits, targets).tolist() == pytest.approx(expected)
    own = self_influences(features, softmax(logits, axis=1), targets)
    assert own.tolist() == pytest.approx([2 * 0.25**2 * 5, 2 * 0.75**2 * 9])


def test_the_head_is_that_of_another_library() -> None:
    features, targets = drawn()
    ours = fit_head(features, targets, 3, 0.5)
    theirs = (
        LogisticRegression(C=2.0, fit_intercept=False, tol=1e-8, max_iter=1000)
        .fit(features, targets)
        .coef_
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize("strength", [0.3, 5.0])
def test_logits_are_the_sums_of_the_products_of_gradients_by_class(strength: float) -> None:
    features, targets = drawn()
    head = fit_head(features[:50], targets[:50], 3, strength)
    dense, logits = features.toarray(), features @ head.T
    errors = softmax(logits, axis=1) - np.eye(3)[targets]
    gradients = np.einsum("ic,if->icf", errors, dense)  # (p − y) hᵀ
    sums = np.einsum(
        "jcf,if->ic", gradients[:50], dense[50:]
    )  # of the fifty, with the states of the held-out ten
    np.testing.assert_allclose(logits[50:], -sums / strength, rtol=1e-2, atol=2e-2)
    np.testing.assert_allclose(
        spoken_against(logits, targets),
        -np.log(softmax(logits, axis=1)[np.arange(60), targets]),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        self_influences(features, softmax(logits, axis=1), targets),
        (gradients**2).sum((1, 2)),
        rtol=1e-9,
    )


def test_no_example_is_judged_by_a_head_that_saw_it() -> None:
    features, targets = drawn()
    parts = parts_of(targets, 5)
    assert all(np.ptp(np.bincount(parts[targets == label], minlength=5)) <= 1 for label in range(3))
    judged = held_out(features, targets, 3)
    for part in range(5):
        out = parts == part
        expected = features[out] @ fit_head(features[~out], targets[~out], 3, judged.strength).T
        np.testing.assert_allclose(judged.logits[out], expected, atol=1e-6)


def test_features_are_weighted_runs_of_tokens() -> None:
    rows = [[1, 5, 5, 2], [1, 2, 7], [5, 2, 5], [1, 2]]
    singles, pairs, triples = (runs_of_tokens(rows, size) for size in (1, 2, 3))
    assert singles.toarray().tolist() == [
        [1, 1, 2],
        [1, 1, 0],
        [0, 1, 2],
        [1, 1, 0],
    ]  # 1, 2 and 5: the 7 stands in one row only
    shared = (
        pairs @ pairs.T
    ).toarray()  # the pair 5 2 and the pair 1 2, and none over the border of rows
    assert shared.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert triples.shape == (4, 0)
    first = np.array([1 + math.log(5 / 4), 1, (1 + math.log(2)) * (1 + math.log(5 / 3))])
    np.testing.assert_allclose(weighted(singles).toarray()[0], first / np.linalg.norm(first))
    features = features_of(rows)
    assert features.shape == (4, 3 + 2 + 0 + 1)
    assert features.multiply(features).sum(1).ravel().tolist()[0] == pytest.approx(
        [3.0] * 4
    )  # tokens, pairs and the 1


WORDS = {
    "sport": "match goal team coach",
    "money": "bank share price profit",
    "space": "moon rocket orbit planet",
}


def templates(count: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.choice(list(WORDS))
        own = draw.choice(WORDS[label].split())
        other = draw.choice(draw.choice(list(WORDS.values())).split())
        rows.append(
            (
                (
                    f"today the {own} was "
                    f"{draw.choice(['good', 'bad', 'late'])} "
                    f"and the {own} of {other} {draw.randrange(50)}"
                ),
                label,
            )
        )
    return rows


def test_flipped_labels_are_in_the_top_of_the_list() -> None:
    draw, rows = random.Random(5), templates(400, 1)
    flipped = set(draw.sample(range(400), 20))  # 5 %
    labels = [
        draw.choice([name for name in WORDS if name != label]) if i in flipped else label
        for i, (_, label) in enumerate(rows)
    ]
    train = [
        Example((text,), label, "train.csv", i)
        for i, ((text, _), label) in enumerate(zip(rows, labels, strict=True))
    ]
    known = {
        word: number
        for number, word in enumerate(sorted({word for text, _ in rows for word in text.split()}))
    }
    features = features_of([[known[word] for word in text.split()] for text, _ in rows])
    found = suspects_of(train, sorted({example.label for example in train}), features)
    top = found[:40]
    assert len(flipped & {one.line for one in top}) >= 0.9 * len(flipped)
    right = [one.suggested == rows[one.line][1] for one in top if one.line in flipped]
    assert sum(right) >= 0.9 * len(right)
    assert found == sorted(found, key=lambda one: -one.score) and all(
        one.label != one.suggested for one in found
    )


def test_a_table_holds_any_text() -> None:
    suspects = [Suspect(1, "a,b.csv", 2, 'say "no",\nthen ¿sí?', "x", "y", 1.5, 0.25)]
    (row,) = csv.DictReader(io.StringIO(as_csv(suspects)))
    assert (
        row["text"] == suspects[0].text
        and row["file"] == "a,b.csv"
        and float(row["score"]) == 1.5
        and next(iter(row)) == "rank"
    )
