"""How sure a score is: bootstrap intervals and paired differences over the test examples.

Test examples are resampled, the metric is averaged over the seeds. Examples with the same gold class and the same
predictions by every model and seed are interchangeable, so what is drawn is how often each such pattern occurs
(a multinomial): the same distribution as drawing examples one by one, at the cost of the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.metrics import METRICS, Array, Floats, checked, score_resamples

_CELLS = 2_000_000  # resamples × patterns held at a time: bounds memory to some tens of megabytes


def mean_score(gold: Array, predicted: Array, metric: str, classes: int) -> float:
    """Returns the metric averaged over the seeds; `predicted` is seeds × n."""
    return float(np.mean([METRICS[metric](gold, row, classes) for row in np.atleast_2d(predicted)]))


def bootstrap_interval(
    gold: Array, predicted: Array, metric: str, classes: int, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Returns the percentile interval of the metric averaged over seeds; `predicted` is seeds × n."""
    rows = np.atleast_2d(predicted)
    scores = np.concatenate(
        [
            _mean_over_seeds(metric, pattern_gold, patterns, classes, weights)
            for pattern_gold, patterns, weights in _resampled(gold, rows, classes, resamples, seed)
        ]
    )
    return _percentiles(scores, confidence)


def paired_difference(
    gold: Array,
    ours: Array,
    other: Array,
    metric: str,
    classes: int,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, float]:
    """Returns ours − other: `difference`, its interval `low`, `high`, and the two-sided `p` of a paired bootstrap.

    Both are seeds × n; their numbers of seeds may differ. p is twice the smaller share of resamples on either side
    of zero, with one added to counts so that a finite number of resamples never claims p = 0.
    """
    ours, other = np.atleast_2d(ours), np.atleast_2d(other)
    drawn = []
    for pattern_gold, patterns, weights in _resampled(gold, np.concatenate([ours, other]), classes, resamples, seed):
        mine, its = patterns[: len(ours)], patterns[len(ours) :]
        drawn.append(
            _mean_over_seeds(metric, pattern_gold, mine, classes, weights) - _mean_over_seeds(metric, pattern_gold, its, classes, weights)
        )
    # rounded: equal scores must count as equal, whatever order they were summed in
    differences = np.asarray(np.round(np.concatenate(drawn), 12), dtype=np.float64)
    low, high = _percentiles(differences, confidence)
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    difference = mean_score(gold, ours, metric, classes) - mean_score(gold, other, metric, classes)
    return {"difference": difference, "low": low, "high": high, "p": min(1.0, 2 * (tail + 1) / (resamples + 1))}


def _resampled(
    gold: Array, rows: Array, classes: int, resamples: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yields (gold of each pattern, predictions of each pattern, how often each resample holds it) in bounded parts."""
    for row in rows:
        checked(gold, row, classes)
    patterns, counts = np.unique(np.vstack([gold, rows]), axis=1, return_counts=True)
    generator = np.random.default_rng(seed)
    shares = counts / counts.sum()
    part = max(1, _CELLS // patterns.shape[1])
    for start in range(0, resamples, part):
        weights = generator.multinomial(len(gold), shares, size=min(part, resamples - start))
        yield patterns[0], patterns[1:], weights


def _mean_over_seeds(metric: str, gold: Array, rows: Array, classes: int, weights: Array) -> Floats:
    scores = [score_resamples(metric, gold, row, classes, weights) for row in rows]
    return np.asarray(np.mean(scores, axis=0), dtype=np.float64)


def _percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
