"""The confusion matrix and per-class scores against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from tasklm.evaluate.confusion import confusion_matrix, per_class


@pytest.mark.parametrize("seed", range(4))
def test_confusion_and_class_scores_equal_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    # class 5 is nowhere, 4 is never gold, 2 and 3 are never predicted
    gold, predicted = random.integers(0, 4, 50), random.choice([0, 1, 4], 50)
    matrix = confusion_matrix(gold, predicted, 6)
    np.testing.assert_array_equal(
        matrix, metrics.confusion_matrix(gold, predicted, labels=range(6))
    )
    expected = metrics.precision_recall_fscore_support(
        gold, predicted, labels=range(6), zero_division=0
    )
    ours = per_class(matrix)
    for position, values in enumerate(zip(*expected, strict=True)):
        mine = ours[position]
        assert (mine.precision, mine.recall, mine.f1, mine.gold) == pytest.approx(values)
        assert mine.predicted == (predicted == position).sum()
