"""Metrics against scikit-learn, and the batched form against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tasklm.errors import DataError
from tasklm.tasks.metrics import METRICS, accuracy, macro_f1, micro_f1, score_resamples

CLASSES = [((0, 1), (0, 1)), ((0, 1, 2, 3), (1, 4)), ((2, 3), (0, 1)), ((0,), (0,)), ((5,), (1, 5))]
CASES = [(gold, predicted, seed) for seed in range(5) for gold, predicted in CLASSES]


def drawn(gold_classes: tuple[int, ...], predicted_classes: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.choice(gold_classes, 37), random.choice(predicted_classes, 37)


@pytest.mark.parametrize(("gold_classes", "predicted_classes", "seed"), CASES)
def test_metrics_equal_scikit_learn(gold_classes: tuple[int, ...], predicted_classes: tuple[int, ...], seed: int) -> None:
    gold, predicted = drawn(gold_classes, predicted_classes, seed)
    assert accuracy(gold, predicted, 6) == pytest.approx(accuracy_score(gold, predicted))
    assert micro_f1(gold, predicted, 6) == pytest.approx(f1_score(gold, predicted, average="micro"))
    assert macro_f1(gold, predicted, 6) == pytest.approx(f1_score(gold, predicted, average="macro"))


@pytest.mark.parametrize("metric", METRICS)
def test_resamples_equal_scoring_the_repeated_examples(metric: str) -> None:
    gold, predicted = drawn((0, 1, 2), (0, 1, 3), 7)
    weights = np.random.default_rng(1).multinomial(len(gold), np.ones(len(gold)) / len(gold), size=20)
    weights[0] = 0
    weights[0, 3] = 5  # one example only: most classes are absent from this resample
    expected = [METRICS[metric](np.repeat(gold, row), np.repeat(predicted, row), 6) for row in weights]
    np.testing.assert_allclose(score_resamples(metric, gold, predicted, 6, weights), expected, atol=1e-12)


def test_nothing_to_score_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="no examples"):
        accuracy(np.array([], dtype=int), np.array([], dtype=int), 2)


@pytest.mark.parametrize("predicted", [[0, 3], [0, -1], [0.0, 1.0], [0]])
def test_what_is_no_class_is_refused(predicted: list[float]) -> None:
    with pytest.raises(ValueError, match=r"predict"):
        macro_f1(np.array([0, 1]), np.array(predicted), 3)
