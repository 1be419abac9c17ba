"""Scores of several seeds as text: means with intervals, gains, and tests of paired scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.stats import t, ttest_rel

COVERAGE = 0.95
FEWEST = 3  # pairs that a test needs


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its interval (Student's t); NaN of a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return mean, float(t.ppf((1 + COVERAGE) / 2, len(values) - 1)) * error


def written(values: Sequence[float] | None, sign: bool = False) -> str:
    """A mean with its interval; empty where there are no values."""
    if not values:
        return ""
    mean, half = interval(values)
    number = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    return number if math.isnan(half) else f"{number} ± {half:.1f}"


def gains(one: Sequence[float] | None, other: Sequence[float] | None) -> list[float] | None:
    """What the first adds to the second, seed by seed; None where they are not of equal seeds."""
    if not one or not other or len(one) != len(other):
        return None
    return [better - worse for better, worse in zip(one, other, strict=True)]


def paired_p(differences: Sequence[float]) -> float | None:
    """The two-sided p of the paired t-test that the mean difference is 0; None of few pairs, or
    where all are equal.
    """
    if len(differences) < FEWEST or len(set(differences)) == 1:
        return None
    return float(ttest_rel(differences, [0.0] * len(differences)).pvalue)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, and an empty one."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
