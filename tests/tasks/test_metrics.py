"""Metrics against scikit-learn, SciPy and counts by hand; resamples against the examples that they
repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from tasklm.errors import DataError, RecipeError
from tasklm.tasks.base import Metric
from tasklm.tasks.metrics import (
    answer_metric,
    class_metric,
    entities,
    label_set_metric,
    number_metric,
    tag_metric,
    tree_metric,
)

LABELS = ["a", "b", "c", "d", "e"]


def score(metric: Metric, gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    return float(metric.value(metric.statistics(gold, predicted).sum(0)))


def drawn(letters: str, seed: int, size: int = 37) -> list[str]:
    return [str(letter) for letter in np.random.default_rng(seed).choice(list(letters), size)]


@pytest.mark.parametrize(
    ("gold_letters", "predicted_letters"),
    [("ab", "ab"), ("abcd", "be"), ("cd", "ab"), ("a", "a"), ("e", "be")],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_class_metrics_equal_scikit_learn(
    gold_letters: str, predicted_letters: str, seed: int
) -> None:
    gold, predicted = drawn(gold_letters, seed), drawn(predicted_letters, seed + 100)
    expected = {
        "accuracy": sk.accuracy_score(gold, predicted),
        "micro_f1": sk.f1_score(gold, predicted, average="micro"),
        "macro_f1": sk.f1_score(gold, predicted, average="macro"),
        "weighted_f1": sk.f1_score(gold, predicted, average="weighted"),
        "matthews": sk.matthews_corrcoef(gold, predicted),
    }
    for name, value in expected.items():
        assert score(class_metric(name, LABELS), gold, predicted) == pytest.approx(
            value, abs=1e-12
        ), name


@pytest.mark.parametrize("seed", range(3))
def test_f1_is_that_of_the_last_of_two_labels(seed: int) -> None:
    gold, predicted = drawn("01", seed), drawn("0111", seed + 100)
    assert score(class_metric("f1", ["1", "0"]), gold, predicted) == pytest.approx(
        sk.f1_score(gold, predicted, pos_label="1")
    )
    assert score(class_metric("f1", ["1", "0"]), ["0", "0"], ["0", "0"]) == 0.0
    with pytest.raises(RecipeError, match="needs two labels, the task has 5"):
        class_metric("f1", LABELS)


def subsets(seed: int, letters: str = "abcde", size: int = 40) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(seed)
    return [tuple(letter for letter in letters if draw.random() < 0.4) for _ in range(size)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("letters", ["abcde", "abc"])
def test_label_sets_equal_scikit_learn(seed: int, letters: str) -> None:
    gold, predicted = subsets(seed, letters), subsets(seed + 100, letters)
    present = sorted(set().union(*gold, *predicted))
    ours, theirs = (
        np.array([[label in names for label in present] for names in part], int)
        for part in (gold, predicted)
    )
    assert score(label_set_metric("micro_f1", LABELS), gold, predicted) == pytest.approx(
        sk.f1_score(ours, theirs, average="micro")
    )
    assert score(label_set_metric("macro_f1", LABELS), gold, predicted) == pytest.approx(
        sk.f1_score(ours, theirs, average="macro")
    )
    assert score(label_set_metric("accuracy", LABELS), gold, predicted) == pytest.approx(
        sk.accuracy_score(ours, theirs)
    )
    lists = [list(names) for names in predicted]
    assert score(
        label_set_metric("accuracy", LABELS), [frozenset(names) for names in gold], lists
    ) == pytest.approx(sk.accuracy_score(ours, theirs))


def test_labels_that_train_does_not_have_are_missed() -> None:
    gold, predicted = [("a", "x", "y"), ("b",)], [("a",), ("b",)]
    assert score(label_set_metric("micro_f1", ["a", "b"]), gold, predicted) == pytest.approx(
        2 * 2 / (4 + 2)
    )
    assert score(label_set_metric("macro_f1", ["a", "b"]), gold, predicted) == pytest.approx(2 / 3)
    assert score(label_set_metric("accuracy", ["a", "b"]), gold, predicted) == 0.5
    with pytest.raises(ValueError, match="none of the task's"):
        score(label_set_metric("micro_f1", ["a", "b"]), predicted, gold)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_correlations_equal_scipy(seed: int, offset: float) -> None:
    draw = np.random.default_rng(seed)
    gold = np.round(draw.normal(size=50), 1) + offset  # rounded: some are equal
    predicted = gold + np.round(draw.normal(size=50), 1)
    assert score(number_metric("pearson"), list(gold), list(predicted)) == pytest.approx(
        stats.pearsonr(gold, predicted)[0], abs=1e-9
    )
    assert score(number_metric("spearman"), list(gold), list(predicted)) == pytest.approx(
        stats.spearmanr(gold, predicted)[0], abs=1e-12
    )


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_a_correlation_with_a_constant_is_zero(name: str) -> None:
    for constant in (0.1, 0.0, 1e9 + 0.1):
        assert score(number_metric(name), [1.0, 2.0, 3.5, 0.3, 7.0], [constant] * 5) == 0.0
    metric = number_metric(name)
    found = metric.statistics([1.1, 2.3, 3.7], [0.2, 0.1, 0.5])
    assert metric.value(7 * found[0]) == 0.0  # a resample that holds one example only


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O", {("PER", 1, 3)}),
        ("O I-PER I-PER O", {("PER", 1, 3)}),  # I- after O begins an entity
        ("I-PER", {("PER", 0, 1)}),
        ("B-PER I-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),  # the type changes inside
        ("I-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),
        ("I-PER B-PER I-PER", {("PER", 0, 1), ("PER", 1, 3)}),  # B- after I-
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("S-PER B-LOC E-LOC O S-LOC", {("PER", 0, 1), ("LOC", 1, 3), ("LOC", 4, 5)}),
        (
            "B-LOC I-LOC E-LOC I-LOC E-LOC",
            {("LOC", 0, 3), ("LOC", 3, 5)},
        ),  # I- after E- begins an entity
        ("S-LOC E-LOC O E-LOC", {("LOC", 0, 1), ("LOC", 1, 2), ("LOC", 3, 4)}),
        ("B I O B", {("", 0, 2), ("", 3, 4)}),
        ("B-a-b I-a-b I-a-c", {("a-b", 0, 2), ("a-c", 2, 3)}),
        ("O O", set()),
        ("", set()),
    ],
)
def test_entities_as_conlleval_reads_them(tags: str, expected: set[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


# conlleval's own way: does an entity begin here, did one end before this word? Both by pairs of
# marks, and entities are never listed.
BEGINS = {("O", "I"), ("O", "E"), ("E", "I"), ("E", "E"), ("S", "I"), ("S", "E")}
ENDS = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}


def conlleval(gold: list[str], predicted: list[str]) -> tuple[int, int, int]:
    right = found_gold = found_predicted = 0
    inside, before = False, (("O", ""), ("O", ""))
    for tags in [*zip(gold, predicted, strict=True), ("O", "O")]:
        now = tuple((tag[0], tag[2:]) for tag in tags)
        ends = [
            old[0] in "ES" or (old[0], new[0]) in ENDS or (old[0] != "O" and old[1] != new[1])
            for old, new in zip(before, now, strict=True)
        ]
        begins = [
            new[0] in "BS" or (old[0], new[0]) in BEGINS or (new[0] != "O" and old[1] != new[1])
            for old, new in zip(before, now, strict=True)
        ]
        if inside:
            right += all(ends) and before[0][1] == before[1][1]
            inside = not any(ends) and now[0][1] == now[1][1]
        inside = inside or (all(begins) and now[0][1] == now[1][1])
        found_gold, found_predicted = found_gold + begins[0], found_predicted + begins[1]
        before = (now[0], now[1])
    return right, found_gold, found_predicted


@pytest.mark.parametrize("marks", ["BI", "BIES"])
def test_entities_are_counted_as_conlleval_counts(marks: str) -> None:
    tags = ["O", *(f"{mark}-{kind}" for mark in marks for kind in ("X", "Y"))]
    draw = np.random.default_rng(3)
    gold = [[str(tag) for tag in draw.choice(tags, 8)] for _ in range(400)]
    predicted = [
        [str(draw.choice(tags)) if draw.random() < 0.3 else tag for tag in row] for row in gold
    ]
    found = tag_metric("entity_f1").statistics(gold, predicted)
    assert found.tolist() == [list(conlleval(*pair)) for pair in zip(gold, predicted, strict=True)]
    assert 400 < found[:, 0].sum() < found[:, 1].sum()


def test_entity_f1_and_tag_accuracy_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O", "O"], ["B-ORG", "I-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-LOC", "O"], ["I-ORG", "I-ORG"]]
    # gold has 3 entities, 4 are predicted, right are PER of the first and ORG of the last sentence
    assert score(tag_metric("entity_f1"), gold, predicted) == pytest.approx(2 * 2 / (3 + 4))
    assert score(tag_metric("accuracy"), gold, predicted) == pytest.approx(6 / 9)
    assert score(tag_metric("entity_f1"), [["O"]], [["O"]]) == 0.0
    for name in ("entity_f1", "accuracy"):
        with pytest.raises(ValueError, match="2 words has predictions for 1"):
            tag_metric(name).statistics([["O", "O"]], [["O"]])


@pytest.mark.parametrize(
    ("gold", "answer", "exact", "f1"),
    [
        (["The  Big, Apple!"], "big apple", 1, 1),
        (
            ["Denver Broncos", "The Denver Broncos of Denver"],
            "denver denver",
            0,
            4 / 6,
        ),  # the second is nearer: 2 words of 4 and of 2
        (["an anthem"], "anthem", 1, 1),
        (["theatre"], "the theatre a", 1, 1),  # articles go as whole words
        ([], "", 1, 1),
        ([], "something", 0, 0),
        (["something"], "", 0, 0),
        (["the", "..."], "", 1, 1),  # nothing is left of the gold answers: as if there were none
        (["a b c d"], "b c x y", 0, 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3)),
        (["x"], "y", 0, 0),
    ],
)
def test_answers_by_the_rules_of_squad(
    gold: list[str], answer: str, exact: float, f1: float
) -> None:
    assert score(answer_metric("exact_match"), [gold], [answer]) == exact
    assert score(answer_metric("answer_f1"), [gold], [answer]) == pytest.approx(f1)


def test_answers_are_scored_as_transformers_scores_them() -> None:
    squad = pytest.importorskip("transformers.data.metrics.squad_metrics")
    draw = np.random.default_rng(4)
    pieces = [
        "the",
        "A",
        "an",
        "theme",
        "Rome",
        "rome,",
        "1,000",
        "well-known",
        "é",
        "  ",
        "!",
        "U.S.",
        "a.",
    ]
    texts = [" ".join(draw.choice(pieces, draw.integers(0, 5))) for _ in range(600)]
    gold = [texts[i : i + int(draw.integers(0, 4))] for i in range(300)]
    answers = [
        rows[0] if rows and draw.random() < 0.5 else texts[-i - 1] for i, rows in enumerate(gold)
    ]
    for name, judge in (("exact_match", squad.compute_exact), ("answer_f1", squad.compute_f1)):
        kept = [[text for text in rows if squad.normalize_answer(text)] or [""] for rows in gold]
        expected = [
            max(judge(text, answer) for text in rows)
            for rows, answer in zip(kept, answers, strict=True)
        ]
        np.testing.assert_allclose(answer_metric(name).statistics(gold, answers)[:, 0], expected)
        assert 0.1 < np.mean(expected) < 0.9


def test_trees_by_hand() -> None:
    gold = [[[2, "nsubj"], [0, "root"], [2, "obj"], [2, "punct"]], [(0, "root"), (1, "punct:x")]]
    predicted = [[(2, "nsubj"), (0, "root"), (2, "iobj"), (3, "punct")], [[2, "dep"], [0, "root"]]]
    assert score(tree_metric("uas"), gold, predicted) == 3 / 4
    assert score(tree_metric("las"), gold, predicted) == 2 / 4
    assert score(tree_metric("uas", punctuation=True), gold, predicted) == 3 / 6
    assert score(tree_metric("las", punctuation=True), gold, predicted) == 2 / 6


def resampled_cases() -> list[tuple[Metric, list[Any], list[Any]]]:
    draw = np.random.default_rng(5)
    cases: list[tuple[Metric, list[Any], list[Any]]] = []
    for name in ("accuracy", "micro_f1", "macro_f1", "weighted_f1", "matthews"):
        cases.append((class_metric(name, LABELS), drawn("abcd", 1, 30), drawn("abe", 2, 30)))
    cases.append((class_metric("f1", ["a", "b"]), drawn("ab", 1, 30), drawn("ab", 2, 30)))
    for name in ("accuracy", "micro_f1", "macro_f1"):
        cases.append((label_set_metric(name, LABELS), subsets(1, size=30), subsets(2, size=30)))
    gold = draw.normal(size=30)
    cases.append((number_metric("pearson"), list(gold), list(gold + draw.normal(size=30))))
    tags = [drawn("OBI", seed, 6) for seed in range(60)]
    cases += [(tag_metric(name), tags[:30], tags[30:]) for name in ("entity_f1", "accuracy")]
    texts = ["".join(f"{letter} " for letter in drawn("xyz", seed, 3)) for seed in range(60)]
    cases += [
        (answer_metric(name), [[text] for text in texts[:30]], texts[30:])
        for name in ("exact_match", "answer_f1")
    ]
    trees = [
        [(int(head), "ab"[int(head) % 2]) for head in draw.integers(0, 3, 4)] for _ in range(60)
    ]
    cases += [(tree_metric(name), trees[:30], trees[30:]) for name in ("uas", "las")]
    return cases


@pytest.mark.parametrize(("metric", "gold", "predicted"), resampled_cases())
def test_resamples_equal_scoring_the_repeated_examples(
    metric: Metric, gold: list[Any], predicted: list[Any]
) -> None:
    weights = np.random.default_rng(1).multinomial(30, np.ones(30) / 30, size=12)
    weights[0] = 0
    weights[0, 3] = 5  # one example only: most classes are absent from this resample

    def repeated(values: list[Any], row: Any) -> list[Any]:
        return [value for value, times in zip(values, row, strict=True) for _ in range(times)]

    expected = [score(metric, repeated(gold, row), repeated(predicted, row)) for row in weights]
    np.testing.assert_allclose(
        metric.value(weights @ metric.statistics(gold, predicted)), expected, atol=1e-9
    )


def test_resampled_spearman_is_near_that_of_the_repeated_examples() -> None:
    draw = np.random.default_rng(2)
    gold = draw.normal(size=400)
    predicted = gold + draw.normal(size=400)
    metric, row = number_metric("spearman"), draw.multinomial(400, np.ones(400) / 400)
    exact = stats.spearmanr(np.repeat(gold, row), np.repeat(predicted, row))[0]
    assert float(
        metric.value(row @ metric.statistics(list(gold), list(predicted)))
    ) == pytest.approx(exact, abs=0.02)


def test_faults_are_told() -> None:
    with pytest.raises(
        RecipeError,
        match=(
            r"no 'acuracy' for this task \(did you mean "
            r"'accuracy'\?\); choose from accuracy, micro_f1"
        ),
    ):
        class_metric("acuracy", LABELS)
    with pytest.raises(RecipeError, match="choose from spearman, pearson"):
        number_metric("accuracy")
    with pytest.raises(DataError, match="no examples to score"):
        class_metric("accuracy", LABELS).statistics([], [])
    with pytest.raises(ValueError, match="'x' is none of the 5 labels"):
        class_metric("macro_f1", LABELS).statistics(["a"], ["x"])
    with pytest.raises(ValueError, match="2 labels, but 1 predictions"):
        class_metric("macro_f1", LABELS).statistics(["a", "b"], ["a"])
