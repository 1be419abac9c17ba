"""How sure a score is: bootstrap intervals and paired differences over the test examples.

Test examples are resampled, the metric is averaged over the seeds. A metric is a function of sums of what each example adds, so that a
resample costs a matrix product. Examples that add the same under every model and seed are interchangeable, so what is drawn is how often
each such pattern occurs (a multinomial): the same distribution as drawing examples one by one, at the cost of the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError
from tasklm.tasks.base import Floats, Label, Metric

_CELLS = 2_000_000  # resamples × patterns held at a time: bounds memory to some tens of megabytes


def statistics_of(metric: Metric, gold: Sequence[Label], predicted: Sequence[Sequence[Label]]) -> Floats:
    """Returns (seeds, examples, numbers): what each example adds to the sums of the metric, for the predictions of every seed."""
    if not len(gold):
        raise DataError("there are no examples to score", remedy="Give a dev or test file with at least one labelled example.")
    for row in predicted:
        if len(row) != len(gold):
            raise ValueError(f"there are {len(gold)} examples and {len(row)} predictions")
    return np.stack([np.asarray(metric.statistics(gold, row), np.float64) for row in predicted])


def per_seed(metric: Metric, statistics: Floats) -> list[float]:
    """Returns the metric of every seed."""
    return [float(value) for value in metric.value(statistics.sum(1))]


def bootstrap_interval(
    metric: Metric, statistics: Floats, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Returns the percentile interval of the metric averaged over seeds; `statistics` is (seeds, examples, numbers)."""
    drawn = [metric.value(sums).mean(0) for sums in _resampled(statistics, resamples, seed)]
    return _percentiles(np.concatenate(drawn), confidence)


def paired_difference(
    metric: Metric, ours: Floats, other: Floats, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> dict[str, float]:
    """Returns ours − other: `difference`, its interval `low`, `high`, and the two-sided `p` of a paired bootstrap.

    Both are (seeds, examples, numbers); their numbers of seeds may differ. p is twice the smaller share of resamples on either side
    of zero, with one added to counts so that a finite number of resamples never claims p = 0.
    """
    drawn = []
    for sums in _resampled(np.concatenate([ours, other]), resamples, seed):
        values = metric.value(sums)
        drawn.append(values[: len(ours)].mean(0) - values[len(ours) :].mean(0))
    # rounded: equal scores must count as equal, whatever order they were summed in
    differences = np.asarray(np.round(np.concatenate(drawn), 12), dtype=np.float64)
    low, high = _percentiles(differences, confidence)
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    difference = float(np.mean(per_seed(metric, ours)) - np.mean(per_seed(metric, other)))
    return {"difference": difference, "low": low, "high": high, "p": min(1.0, 2 * (tail + 1) / (resamples + 1))}


def _resampled(statistics: Floats, resamples: int, seed: int) -> Iterator[Floats]:
    """Yields the sums (rows, resamples, numbers) of resamples of the examples, in bounded parts."""
    rows, examples, numbers = statistics.shape
    beside: NDArray[np.float64] = statistics.transpose(1, 0, 2).reshape(examples, rows * numbers)
    patterns, counts = np.unique(beside, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    part = max(1, _CELLS // len(patterns))
    for start in range(0, resamples, part):
        weights = generator.multinomial(examples, counts / counts.sum(), size=min(part, resamples - start))
        sums = weights.astype(np.float64) @ patterns
        yield sums.reshape(len(weights), rows, numbers).transpose(1, 0, 2)


def _percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
