"""The uncertainty of scores: bootstrap intervals and paired differences over test examples and
seeds.

Each resample draws test examples and, independently, seeds, all with replacement: trainings of
stage 1 first, then fine-tunings within each. Two models are compared on the same drawn examples,
each with its own seeds.

A metric is a function of sums over examples, so that a resample costs one matrix product. Examples
that contribute the same under every model and seed are interchangeable, so the number of
occurrences of each such pattern is drawn (a multinomial): the same distribution as drawing examples
one by one, at the cost of the patterns. Drawn seeds become weights of the seeds' scores on those
examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError
from tasklm.tasks.base import Floats, Label, Metric

_CELLS = 2_000_000  # resamples × patterns held at a time: bounds memory to some tens of megabytes


@dataclass(frozen=True)
class Predicted:
    """The gold labels of a split and those that every seed predicts, by training of stage 1."""

    gold: Sequence[Label]
    seeds: Sequence[Sequence[Label]]  # the fine-tunings of the first training, of the second …
    trainings: int = 1  # of stage 1; each has as many fine-tunings

    @property
    def shape(self) -> tuple[int, int]:
        """Trainings of stage 1, and fine-tunings of each."""
        return self.trainings, len(self.seeds) // self.trainings


@dataclass(frozen=True)
class Resampling:
    """The number of resamples, the coverage of intervals, and the seed of the draws."""

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0


USUAL = Resampling()


@dataclass(frozen=True)
class Difference:
    """Ours − other on the same test examples: the difference, its interval and its two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    resamples: int = 0  # 0: not known, in files of earlier versions
    resampled: str = "test examples"  # what was drawn

    @property
    def at_floor(self) -> bool:
        """Whether p is the smallest value that this number of resamples can show."""
        return bool(self.resamples) and self.p <= 2 / (self.resamples + 1)

    def p_text(self) -> str:
        """p for a table: '≤ 0.002' if it may be smaller, else '0.31'."""
        return f"≤ {self.p:.2g}" if self.at_floor else f"{self.p:.2g}"

    def sureness(self) -> str:
        """p for a sentence, with the number of resamples."""
        relation = "≤" if self.at_floor else "="
        text = f"p {relation} {self.p:.2g}"
        if self.resamples:
            text += f" with {self.resamples:,} resamples"
        return text


def resampled_text(*shapes: tuple[int, int]) -> str:
    """What is resampled, given the numbers of trainings and fine-tunings: a single one
    cannot vary.
    """
    stages = [str(stage) for stage in (1, 2) if any(shape[stage - 1] > 1 for shape in shapes)]
    if not stages:
        return "test examples"
    return f"test examples and seeds of stage{'s' * (len(stages) - 1)} {' and '.join(stages)}"


def statistics_of(metric: Metric, predicted: Predicted) -> Floats:
    """The contribution of each example to the sums: (trainings, fine-tunings, examples,
    numbers).
    """
    if not len(predicted.gold):
        raise DataError(
            "there are no examples to score",
            remedy="Give a dev or test file with at least one labelled example.",
        )
    for row in predicted.seeds:
        if len(row) != len(predicted.gold):
            raise ValueError(f"there are {len(predicted.gold)} examples and {len(row)} predictions")
    rows = np.stack(
        [np.asarray(metric.statistics(predicted.gold, row), np.float64) for row in predicted.seeds]
    )
    return rows.reshape(predicted.shape + rows.shape[1:])


def per_seed(metric: Metric, statistics: Floats) -> Floats:
    """The metric of every seed: (trainings, fine-tunings)."""
    return np.asarray(metric.value(statistics.sum(2)), np.float64)


def bootstrap_interval(
    metric: Metric, statistics: Floats, resampling: Resampling = USUAL
) -> tuple[float, float]:
    """The percentile interval of the mean over seeds, from what `statistics_of` returns."""
    weights = _weights_of(statistics, resampling, 1)
    scores = _drawn_scores(metric, _rows(statistics), weights, resampling.seed)
    return _percentiles(scores, resampling.confidence)


def paired_difference(
    metric: Metric, ours: Floats, other: Floats, resampling: Resampling = USUAL
) -> Difference:
    """Ours − other by a paired bootstrap; their numbers of seeds may differ.

    p is twice the smaller share of resamples on either side of zero, with one added to the count
    and to the resamples (Davison & Hinkley 1997, §4.2): the smallest possible p is therefore 2 /
    (resamples + 1).
    """
    rows = np.concatenate([_rows(ours), _rows(other)])
    weights = np.concatenate(
        [_weights_of(ours, resampling, 1), -_weights_of(other, resampling, 2)], axis=1
    )
    # rounded: equal scores must count as equal, whatever the order of summation
    differences = np.round(_drawn_scores(metric, rows, weights, resampling.seed), 12)
    low, high = _percentiles(differences, resampling.confidence)
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    difference = float(per_seed(metric, ours).mean() - per_seed(metric, other).mean())
    p = min(1.0, 2 * (tail + 1) / (resampling.resamples + 1))
    drawn = resampled_text((ours.shape[0], ours.shape[1]), (other.shape[0], other.shape[1]))
    return Difference(difference, low, high, p, resampling.resamples, drawn)


def seed_weights(
    trainings: int, tunings: int, resamples: int, generator: np.random.Generator
) -> Floats:
    """The weight of each seed in each resample: (resamples, trainings, fine-tunings), summing to 1.

    At the first level with several, one fewer is drawn than there are: the variance of the drawn
    mean is then right on average (Rao & Wu 1988). Drawing as many would give (n − 1) / n of it: a
    third too little with three seeds. A level with a single one does not vary.
    """
    drawn = max(1, trainings - 1)
    within = tunings if trainings > 1 else max(1, tunings - 1)
    which = generator.integers(trainings, size=(resamples, drawn))
    counts = generator.multinomial(within, np.full(tunings, 1 / tunings), size=(resamples, drawn))
    weights = np.zeros((resamples, trainings, tunings))
    np.add.at(weights, (np.arange(resamples)[:, None], which), counts)
    return weights / (drawn * within)


def _weights_of(statistics: Floats, resampling: Resampling, stream: int) -> Floats:
    """The weights of all seeds, (resamples, seeds); each model has its own stream of draws."""
    generator = np.random.default_rng((resampling.seed, stream))
    trainings, tunings = statistics.shape[:2]
    weights = seed_weights(trainings, tunings, resampling.resamples, generator)
    return weights.reshape(resampling.resamples, -1)


def _rows(statistics: Floats) -> Floats:
    """The statistics of all seeds, stacked: (seeds, examples, numbers)."""
    return statistics.reshape(-1, *statistics.shape[2:])


def _drawn_scores(metric: Metric, statistics: Floats, weights: Floats, seed: int) -> Floats:
    """For each resample the weighted sum of all rows' scores on its examples."""
    scores, start = [], 0
    for sums in _resampled(statistics, len(weights), seed):
        values = metric.value(sums)
        scores.append((weights[start : start + values.shape[1]] * values.T).sum(1))
        start += values.shape[1]
    return np.concatenate(scores)


def _resampled(statistics: Floats, resamples: int, seed: int) -> Iterator[Floats]:
    """Yields the sums (rows, resamples, numbers) of resamples of the examples, in bounded parts."""
    rows, examples, numbers = statistics.shape
    beside: NDArray[np.float64] = statistics.transpose(1, 0, 2).reshape(examples, rows * numbers)
    patterns, counts = np.unique(beside, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    part = max(1, _CELLS // len(patterns))
    for start in range(0, resamples, part):
        weights = generator.multinomial(
            examples, counts / counts.sum(), size=min(part, resamples - start)
        )
        sums = weights.astype(np.float64) @ patterns
        yield sums.reshape(len(weights), rows, numbers).transpose(1, 0, 2)


def _percentiles(values: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
