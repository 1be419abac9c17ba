"""Bootstrap intervals: by hand, against brute force and known sampling distributions, and at the
edges.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tasklm.evaluate import intervals
from tasklm.evaluate.intervals import (
    Difference,
    Predicted,
    Resampling,
    per_seed,
    resampled_text,
    seed_weights,
    statistics_of,
)
from tasklm.tasks.base import score
from tasklm.tasks.metrics import class_metric


def named(numbers: np.ndarray) -> list[str]:
    return [str(number) for number in numbers]


def scored(metric: str, gold: np.ndarray, predicted: np.ndarray, classes: int) -> float:
    return score(class_metric(metric, named(np.arange(classes))), named(gold), named(predicted))


def judged(
    metric: str, classes: int, gold: np.ndarray, rows: np.ndarray, trainings: int = 1
) -> tuple[Any, np.ndarray]:
    chosen = class_metric(metric, named(np.arange(classes)))
    return chosen, statistics_of(
        chosen, Predicted(named(gold), [named(row) for row in np.atleast_2d(rows)], trainings)
    )


def bootstrap_interval(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    classes: int,
    trainings: int = 1,
    **drawn: Any,
) -> tuple[float, float]:
    return intervals.bootstrap_interval(
        *judged(metric, classes, gold, predicted, trainings), Resampling(**drawn)
    )


def paired_difference(
    gold: np.ndarray,
    ours: np.ndarray,
    other: np.ndarray,
    metric: str,
    classes: int,
    trainings: tuple[int, int] = (1, 1),
    **drawn: Any,
) -> Difference:
    chosen, mine = judged(metric, classes, gold, ours, trainings[0])
    return intervals.paired_difference(
        chosen, mine, judged(metric, classes, gold, other, trainings[1])[1], Resampling(**drawn)
    )


def seed_draws(trainings: int, tunings: int) -> list[list[int]]:
    """Every draw of seeds, each as likely as the others, by the numbers of the seeds that it takes.

    Trainings first, one fewer than there are, then as many fine-tunings within each as it has; of
    one training, one fewer.
    """
    if trainings == 1:
        return [
            list(draw) for draw in itertools.product(range(tunings), repeat=max(1, tunings - 1))
        ]
    draws = []
    for outer in itertools.product(range(trainings), repeat=trainings - 1):
        within = [itertools.product(range(tunings), repeat=tunings) for _ in outer]
        for inner in itertools.product(*within):
            draws.append(
                [
                    training * tunings + tuning
                    for training, some in zip(outer, inner, strict=True)
                    for tuning in some
                ]
            )
    return draws


def values_of(metric: str, classes: int, gold: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The score of every row on every resample of the examples: (resamples, rows).

    Draws of the same examples in another order are of one score.
    """
    draws = [tuple(sorted(draw)) for draw in itertools.product(range(len(gold)), repeat=len(gold))]
    of_draw = {
        draw: [scored(metric, gold[list(draw)], row[list(draw)], classes) for row in rows]
        for draw in set(draws)
    }
    return np.array([of_draw[draw] for draw in draws])


def is_quantile(value: float, share: float, every: np.ndarray) -> bool:
    """Whether about that share of all values lies below a value; many are equal, so there are
    jumps.
    """
    below, up_to = (every < value - 1e-9).mean(), (every <= value + 1e-9).mean()
    return bool(below - 0.01 <= share <= up_to + 0.01)


GOLD = np.array([0, 0, 1, 2, 1])
SIX = np.array(
    [
        [0, 1, 1, 2, 0],
        [0, 0, 2, 2, 1],
        [0, 0, 1, 2, 1],
        [1, 1, 1, 2, 1],
        [0, 0, 1, 1, 1],
        [2, 0, 0, 0, 1],
    ]
)


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1", "macro_f1", "matthews"])
@pytest.mark.parametrize(("trainings", "seeds"), [(1, 1), (1, 2), (1, 3), (2, 4), (3, 3), (3, 6)])
def test_interval_equals_all_resamples_of_a_tiny_set(
    metric: str, trainings: int, seeds: int
) -> None:
    rows = SIX[:seeds]
    values = values_of(metric, 3, GOLD, rows)
    every = np.concatenate(
        [values[:, draw].mean(1) for draw in seed_draws(trainings, seeds // trainings)]
    )
    low, high = bootstrap_interval(
        GOLD, rows, metric, 3, trainings, resamples=40_000, confidence=0.6, seed=3
    )
    assert is_quantile(low, 0.2, every) and is_quantile(high, 0.8, every)


@pytest.mark.parametrize(
    ("trainings", "seeds"),
    [((1, 1), (1, 2)), ((1, 1), (3, 1)), ((2, 1), (4, 1)), ((2, 2), (4, 2)), ((3, 2), (3, 2))],
)
def test_paired_difference_equals_all_resamples_of_a_tiny_set(
    trainings: tuple[int, int], seeds: tuple[int, int]
) -> None:
    ours, other = SIX[: seeds[0]], SIX[2:][: seeds[1]]
    mine, theirs = (
        values_of("macro_f1", 3, GOLD, rows) for rows in (ours, other)
    )  # on the same draws of examples
    exact = np.round(
        np.concatenate(
            [
                mine[:, left].mean(1) - theirs[:, right].mean(1)
                for left, right in itertools.product(
                    seed_draws(trainings[0], seeds[0] // trainings[0]),
                    seed_draws(trainings[1], seeds[1] // trainings[1]),
                )
            ]
        ),
        12,
    )
    result = paired_difference(
        GOLD, ours, other, "macro_f1", 3, trainings, resamples=40_000, confidence=0.6
    )
    assert is_quantile(result.low, 0.2, exact) and is_quantile(result.high, 0.8, exact)
    assert result.p == pytest.approx(
        min(1.0, 2 * min((exact <= 0).mean(), (exact >= 0).mean())), abs=0.012
    )


def test_by_hand_two_trainings_are_drawn_one_at_a_time() -> None:
    """With test examples that are all alike nothing else can vary: the interval goes from the one
    score to the other.
    """
    gold = np.zeros(4, dtype=int)
    always, never = np.zeros(4, dtype=int), np.ones(4, dtype=int)
    assert bootstrap_interval(gold, np.array([always, never]), "accuracy", 2, trainings=2) == (
        0.0,
        1.0,
    )
    assert bootstrap_interval(gold, np.array([always, always]), "accuracy", 2, trainings=2) == (
        1.0,
        1.0,
    )
    against_itself = paired_difference(
        gold, np.array([always, never]), np.array([always, never]), "accuracy", 2, (2, 2)
    )
    assert (
        against_itself.low,
        against_itself.high,
        against_itself.difference,
        against_itself.p,
    ) == (-1.0, 1.0, 0.0, 1.0)


def test_by_hand_the_weights_of_drawn_seeds() -> None:
    draw = np.random.default_rng(0)
    assert (seed_weights(1, 1, 5, draw) == 1).all()
    for trainings, tunings, units in ((1, 3, 2), (2, 1, 1), (3, 1, 2), (3, 3, 6), (4, 2, 6)):
        weights = seed_weights(trainings, tunings, 4000, draw)
        assert weights.shape == (4000, trainings, tunings)
        np.testing.assert_allclose(weights.sum((1, 2)), 1)
        np.testing.assert_allclose(
            weights * units, np.round(weights * units), atol=1e-12
        )  # so many are drawn
        np.testing.assert_allclose(weights.mean(0), 1 / (trainings * tunings), atol=0.03)
    alone = seed_weights(2, 2, 4000, draw).sum(2)  # one training, whole
    assert sorted(map(tuple, np.unique(alone, axis=0))) == [(0.0, 1.0), (1.0, 0.0)]


def test_the_drawn_mean_of_trainings_varies_as_it_should() -> None:
    """On average the variance of the drawn means is that of a mean of so many trainings."""
    draw, trainings, variances = np.random.default_rng(1), 3, []
    for _ in range(400):
        scores = draw.normal(0, 1, trainings)
        drawn = seed_weights(trainings, 1, 300, draw)[:, :, 0] @ scores
        variances.append(drawn.var())
    assert np.mean(variances) == pytest.approx(
        1 / trainings, rel=0.15
    )  # as many draws as trainings would give 0.22


def test_p_is_called_by_the_least_that_so_many_resamples_can_show() -> None:
    gold, right = np.zeros(50, dtype=int), np.zeros((1, 50), dtype=int)
    sure = paired_difference(gold, right, 1 - right, "accuracy", 2, resamples=400)
    assert sure.p == 2 / 401 and sure.at_floor
    assert (sure.p_text(), sure.sureness()) == ("≤ 0.005", "p ≤ 0.005 with 400 resamples")
    mixed = right.copy()
    mixed[0, :3] = 1
    near = paired_difference(
        gold, right, mixed, "accuracy", 2, resamples=400
    )  # a draw in 20 has none of the three
    assert (
        not near.at_floor
        and near.p > sure.p
        and near.sureness() == f"p = {near.p:.2g} with 400 resamples"
    )
    assert (
        Difference(0.1, 0.0, 0.2, 0.002).sureness() == "p = 0.002"
    )  # of a file that does not say how many


def test_what_was_drawn_is_said() -> None:
    assert resampled_text((1, 1)) == resampled_text((1, 1), (1, 1)) == "test examples"
    assert resampled_text((1, 3), (1, 1)) == "test examples and seeds of stage 2"
    assert resampled_text((3, 1), (1, 1)) == "test examples and seeds of stage 1"
    assert resampled_text((1, 3), (2, 1)) == "test examples and seeds of stages 1 and 2"


def test_seeds_are_scored_by_training() -> None:
    chosen, statistics = judged("accuracy", 3, GOLD, SIX, trainings=3)
    np.testing.assert_allclose(per_seed(chosen, statistics), (SIX == GOLD).mean(1).reshape(3, 2))


def test_luck_of_the_seed_is_rarely_called_significant() -> None:
    """Two equal methods, three trainings each, whose true scores lie two points of sd apart; by
    test examples alone it is most.
    """
    draw, claimed, by_examples = np.random.default_rng(3), 0, 0
    for trial in range(100):
        gold = np.zeros(500, dtype=int)
        ours, other = (
            (draw.random((3, 500)) > np.clip(draw.normal(0.8, 0.04, (3, 1)), 0, 1)).astype(int)
            for _ in range(2)
        )
        claimed += (
            paired_difference(gold, ours, other, "accuracy", 2, (3, 3), resamples=200, seed=trial).p
            < 0.05
        )
        by_examples += (
            paired_difference(gold, ours[:1], other[:1], "accuracy", 2, resamples=200, seed=trial).p
            < 0.05
        )
    assert claimed <= 10 and by_examples >= 25


def test_interval_covers_the_true_accuracy_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        gold = np.zeros(150, dtype=int)
        predicted = (random.random(150) > 0.7).astype(int)  # true accuracy 0.7
        low, high = bootstrap_interval(
            gold, predicted, "accuracy", 2, resamples=300, confidence=0.9, seed=trial
        )
        covered += low <= 0.7 <= high
    assert 0.83 <= covered / 200 <= 0.96


def test_identical_predictions_differ_by_nothing() -> None:
    random = np.random.default_rng(5)
    gold, predicted = random.integers(0, 3, 60), random.integers(0, 3, (3, 60))
    # the same seeds in another order, drawn apart from one another
    result = paired_difference(gold, predicted, predicted[::-1], "macro_f1", 3)
    assert result.difference == pytest.approx(0, abs=1e-12) and result.p == 1
    one = paired_difference(gold, predicted[:1], predicted[:1], "macro_f1", 3)
    assert (one.low, one.high, one.p) == (0, 0, 1)


def test_a_clear_difference_is_found_and_its_sign_follows_the_order() -> None:
    random = np.random.default_rng(2)
    gold = random.integers(0, 2, 300)
    good = np.where(random.random((3, 300)) < 0.9, gold, 1 - gold)
    poor = np.where(random.random((1, 300)) < 0.6, gold, 1 - gold)
    ahead = paired_difference(gold, good, poor, "accuracy", 2)
    behind = paired_difference(gold, poor, good, "accuracy", 2)
    assert ahead.low > 0.2
    assert ahead.p == pytest.approx(2 / 1001)
    assert behind.difference == pytest.approx(-ahead.difference)
    assert behind.high < -0.2


def test_no_real_difference_is_rarely_significant() -> None:
    random = np.random.default_rng(9)
    found = 0
    for trial in range(100):
        gold = random.integers(0, 2, 100)
        flips = random.random((2, 100)) < 0.3
        rows = np.where(flips, 1 - gold, gold)
        found += (
            paired_difference(gold, rows[0], rows[1], "accuracy", 2, resamples=200, seed=trial).p
            < 0.05
        )
    assert found <= 12


def test_same_seed_same_interval_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    gold, predicted = random.integers(0, 3, 40), random.integers(0, 3, (2, 40))
    whole = bootstrap_interval(gold, predicted, "macro_f1", 3, seed=1)
    assert bootstrap_interval(gold, predicted, "macro_f1", 3, seed=2) != whole
    monkeypatch.setattr(intervals, "_CELLS", 100)
    assert bootstrap_interval(gold, predicted, "macro_f1", 3, seed=1) == pytest.approx(
        whole, abs=1e-12
    )
