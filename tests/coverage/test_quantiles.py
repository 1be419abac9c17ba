"""Thresholds by hand, and the coverage that they give by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasklm.coverage.quantiles import (
    expected_interval,
    fewest,
    fewest_of_class,
    measured_interval,
    pools,
    rank,
    threshold,
    thresholds,
)
from tasklm.tasks.answer_sets import POOLED


@pytest.mark.parametrize(
    ("count", "alpha", "place"),
    [(19, 0.05, 19), (20, 0.05, 20), (39, 0.05, 38), (9, 0.1, 9), (9, 1 - 0.9, 9), (99, 0.01, 99)],
)
def test_the_place_is_that_of_the_formula(count: int, alpha: float, place: int) -> None:
    assert rank(count, alpha) == place


def test_thresholds_of_few_numbers() -> None:
    assert threshold([3.0, 5.0, 8.0], 0.5) == 5.0  # the second of three
    assert threshold([3.0, 5.0, 8.0], 0.25) == 8.0
    assert threshold([3.0, 5.0, 8.0], 0.2) == math.inf
    assert threshold([], 0.5) == math.inf
    for alpha in (0.5, 0.1, 0.05, 1 - 0.95, 0.01):
        enough = fewest(alpha)
        assert math.isfinite(threshold(list(range(enough)), alpha))
        assert threshold(list(range(enough - 1)), alpha) == math.inf
    assert (fewest(0.05), fewest(1 - 0.9), fewest_of_class(0.05)) == (19, 9, 50)


def test_a_new_number_is_covered_as_often_as_promised() -> None:
    draw = np.random.default_rng(0)
    for count, alpha in ((25, 0.1), (60, 0.05), (200, 0.1)):
        hits = []
        for _ in range(4000):
            old, new = np.sort(draw.exponential(size=count)), draw.exponential(size=20)
            hits.append((new <= threshold(old, alpha)).mean())
        exact = rank(count, alpha) / (count + 1)  # between the promise and 1 / (n + 1) more
        assert 1 - alpha <= exact < 1 - alpha + 1 / (count + 1) + 1e-9
        assert np.mean(hits) == pytest.approx(exact, abs=0.004)


def test_each_class_with_enough_examples_is_covered_by_itself() -> None:
    draw = np.random.default_rng(1)
    hits: dict[str, list[float]] = {"easy": [], "hard": [], "rare": []}
    for _ in range(1500):
        seen = {"easy": draw.uniform(0, 0.2, 150), "hard": draw.uniform(0.3, 1, 60)}
        seen |= {"rare": draw.uniform(0, 2, 3)}
        ordered = {name: np.sort(own) for name, own in seen.items()}
        limits = thresholds(ordered, 0.1)
        new = {"easy": draw.uniform(0, 0.2), "hard": draw.uniform(0.3, 1)}
        new |= {"rare": draw.uniform(0, 2)}
        for name, value in new.items():
            hits[name].append(value <= limits[name])
    assert np.mean(hits["easy"]) == pytest.approx(rank(150, 0.1) / 151, abs=0.02)
    # the rare class shares the threshold of the smallest one that has enough
    assert np.mean([*hits["hard"]]) > 0.9
    together = (60 * np.mean(hits["hard"]) + 3 * np.mean(hits["rare"])) / 63
    assert 0.88 < together < 0.94


def test_classes_with_too_few_examples_are_pooled() -> None:
    sizes = {"a": 100, "b": 60, "c": 30, "d": 5}
    scores = {name: np.linspace(0, 1, size) for name, size in sizes.items()}
    assert pools(scores, 0.05) == [["a"], ["b", "c", "d"]]
    assert pools({"a": scores["a"], "c": np.linspace(0, 1, 60)}, 0.05) == [["a"], ["c"]]
    assert pools({"c": scores["c"], "d": scores["d"]}, 0.05) == [["c", "d"]]
    missed = np.append(np.zeros(90), [math.inf] * 10)  # too often, whatever its threshold
    assert pools({"a": scores["a"], "b": missed}, 0.05) == [["a", "b"]]
    limits = thresholds(scores, 0.05)
    assert limits["c"] == limits["b"] != limits["a"]
    assert limits[POOLED] == threshold(np.sort(np.concatenate(list(scores.values()))), 0.05)


def test_intervals_are_those_of_draws() -> None:
    draw = np.random.default_rng(2)
    law = expected_interval(200, 0.1, 300)
    shares = []
    for _ in range(4000):
        most = threshold(np.sort(draw.uniform(size=200)), 0.1)
        shares.append((draw.uniform(size=300) <= most).mean())
    inside = np.mean([law.low <= share <= law.high for share in shares])
    assert 0.945 < inside < 0.97
    assert measured_interval(0, 10).low == 0.0 and measured_interval(10, 10).high == 1.0
    spread = measured_interval(90, 100)
    assert (round(spread.low, 4), round(spread.high, 4)) == (0.8238, 0.951)  # as in R's binom.test
