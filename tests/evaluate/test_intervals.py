"""Bootstrap intervals: against brute force, against the known sampling distribution, and at the edges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tasklm.evaluate import intervals
from tasklm.evaluate.intervals import statistics_of
from tasklm.tasks.base import score
from tasklm.tasks.scoring import class_metric


def named(numbers: np.ndarray) -> list[str]:
    return [str(number) for number in numbers]


def scored(metric: str, gold: np.ndarray, predicted: np.ndarray, classes: int) -> float:
    return score(class_metric(metric, named(np.arange(classes))), named(gold), named(predicted))


def judged(metric: str, classes: int, gold: np.ndarray, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    chosen = class_metric(metric, named(np.arange(classes)))
    return chosen, statistics_of(chosen, named(gold), [named(row) for row in np.atleast_2d(rows)])


def bootstrap_interval(gold: np.ndarray, predicted: np.ndarray, metric: str, classes: int, **how: Any) -> tuple[float, float]:
    return intervals.bootstrap_interval(*judged(metric, classes, gold, predicted), **how)


def paired_difference(gold: np.ndarray, ours: np.ndarray, other: np.ndarray, metric: str, classes: int, **how: Any) -> dict[str, float]:
    chosen, mine = judged(metric, classes, gold, ours)
    return intervals.paired_difference(chosen, mine, judged(metric, classes, gold, other)[1], **how)


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1", "macro_f1", "matthews"])
def test_interval_equals_all_resamples_of_a_tiny_set(metric: str) -> None:
    gold = np.array([0, 0, 1, 2, 1])
    predicted = np.array([[0, 1, 1, 2, 0], [0, 0, 2, 2, 1]])
    every = []
    for draw in itertools.product(range(5), repeat=5):
        picked = list(draw)
        every.append(np.mean([scored(metric, gold[picked], row[picked], 3) for row in predicted]))
    low, high = bootstrap_interval(gold, predicted, metric, 3, resamples=40_000, confidence=0.6, seed=3)
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.2, 0.8])), abs=0.01)


def test_paired_difference_equals_all_resamples_of_a_tiny_set() -> None:
    gold = np.array([0, 0, 1, 1, 1])
    ours, other = np.array([[0, 0, 1, 1, 0]]), np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    every = []
    for draw in itertools.product(range(5), repeat=5):
        picked = list(draw)
        values = [np.mean([scored("macro_f1", gold[picked], row[picked], 2) for row in rows]) for rows in (ours, other)]
        every.append(values[0] - values[1])
    exact = np.round(every, 12)
    result = paired_difference(gold, ours, other, "macro_f1", 2, resamples=40_000, confidence=0.6)
    assert (result["low"], result["high"]) == pytest.approx(tuple(np.quantile(exact, [0.2, 0.8])), abs=0.01)
    assert result["p"] == pytest.approx(2 * min((exact <= 0).mean(), (exact >= 0).mean()), abs=0.01)


def test_interval_covers_the_true_accuracy_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        gold = np.zeros(150, dtype=int)
        predicted = (random.random(150) > 0.7).astype(int)  # true accuracy 0.7
        low, high = bootstrap_interval(gold, predicted, "accuracy", 2, resamples=300, confidence=0.9, seed=trial)
        covered += low <= 0.7 <= high
    assert 0.83 <= covered / 200 <= 0.96


def test_identical_predictions_differ_by_nothing() -> None:
    random = np.random.default_rng(5)
    gold, predicted = random.integers(0, 3, 60), random.integers(0, 3, (3, 60))
    # the same seeds in another order: sums in another order must not look like a difference
    result = paired_difference(gold, predicted, predicted[::-1], "macro_f1", 3)
    assert result["difference"] == pytest.approx(0, abs=1e-12)
    assert (result["low"], result["high"], result["p"]) == (0, 0, 1)


def test_a_clear_difference_is_found_and_its_sign_follows_the_order() -> None:
    random = np.random.default_rng(2)
    gold = random.integers(0, 2, 300)
    good = np.where(random.random((3, 300)) < 0.9, gold, 1 - gold)
    poor = np.where(random.random((1, 300)) < 0.6, gold, 1 - gold)
    ahead, behind = paired_difference(gold, good, poor, "accuracy", 2), paired_difference(gold, poor, good, "accuracy", 2)
    assert ahead["low"] > 0.2
    assert ahead["p"] == pytest.approx(2 / 1001)
    assert behind["difference"] == pytest.approx(-ahead["difference"])
    assert behind["high"] < -0.2


def test_no_real_difference_is_rarely_significant() -> None:
    random = np.random.default_rng(9)
    found = 0
    for trial in range(100):
        gold = random.integers(0, 2, 100)
        flips = random.random((2, 100)) < 0.3
        rows = np.where(flips, 1 - gold, gold)
        found += paired_difference(gold, rows[0], rows[1], "accuracy", 2, resamples=200, seed=trial)["p"] < 0.05
    assert found <= 12


def test_same_seed_same_interval_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    gold, predicted = random.integers(0, 3, 40), random.integers(0, 3, (2, 40))
    whole = bootstrap_interval(gold, predicted, "macro_f1", 3, seed=1)
    assert bootstrap_interval(gold, predicted, "macro_f1", 3, seed=2) != whole
    monkeypatch.setattr(intervals, "_CELLS", 100)
    assert bootstrap_interval(gold, predicted, "macro_f1", 3, seed=1) == pytest.approx(whole, abs=1e-12)
