"""Split conformal prediction in numbers: ranks, thresholds, and what coverage may come out.

Where dev and new examples are drawn alike, the strangeness of a new right answer is as likely to
stand at any place among those of n dev examples. So the threshold at the place ceil((n + 1)(1 − α))
covers it with probability at least 1 − α, and at most 1 / (n + 1) more if no two are equal (Vovk,
Gammerman and Shafer, *Algorithmic Learning in a Random World*; Angelopoulos and Bates, arXiv
2107.07511, section 1 and appendix D).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.answer_sets import POOLED

Sorted = NDArray[np.float64]
# Misses that α leaves to the examples of a class with a threshold of its own, at least: with fewer,
# rounding up to whole examples would cost too much of α. At 95 % these are 50 examples.
CLASS_MISSES = 2.5
ROUNDING = 1e-9  # (n + 1)(1 − α) that is whole, but for arithmetic, is not rounded up


def alpha_of(coverage: float) -> float:
    """The share of misses that a coverage leaves: 0.05 of 0.95, without the error of arithmetic."""
    return round(1 - coverage, 12)


def rank(count: int, alpha: float) -> int:
    """The place of the threshold among `count` sorted numbers, from 1; beyond them: infinite."""
    return math.ceil((count + 1) * (1 - alpha) - ROUNDING)


def threshold(ordered: Sequence[float] | Sorted, alpha: float) -> float:
    """The number that at most a share α of new ones, drawn alike, exceeds; infinite for too few."""
    place = rank(len(ordered), alpha)
    return math.inf if place > len(ordered) else float(ordered[place - 1])


def fewest(alpha: float) -> int:
    """The number of examples without which no finite threshold exists: 1 / α − 1, rounded up."""
    return max(1, math.ceil(1 / alpha - 1 - ROUNDING))


def fewest_of_class(alpha: float) -> int:
    """The number of examples of a class that has a threshold of its own."""
    return math.ceil(CLASS_MISSES / alpha - ROUNDING)


def pools(scores: Mapping[str, Sorted], alpha: float) -> list[list[str]]:
    """Which classes share a threshold: one alone if it has enough examples, the rest together.

    The smallest of the former join the rest until these have enough, too. A class that is missed
    too often whatever its threshold, and so has an infinite one, counts as one with too few.
    """
    alone = sorted(
        (name for name in scores if has_own([scores[name]], alpha)),
        key=lambda name: (len(scores[name]), name),
    )
    rest = [name for name in scores if name not in alone]
    while rest and alone and not has_own([scores[name] for name in rest], alpha):
        rest.append(alone.pop(0))
    return [[name] for name in sorted(alone)] + ([sorted(rest)] if rest else [])


def has_own(parts: Sequence[Sorted], alpha: float) -> bool:
    """Whether examples are enough for a threshold of their own."""
    own = merged(parts)
    return len(own) >= fewest_of_class(alpha) and math.isfinite(threshold(own, alpha))


def thresholds(scores: Mapping[str, Sorted], alpha: float) -> dict[str, float]:
    """The threshold of each class that has scores; POOLED: that of any other."""
    chosen = {POOLED: threshold(merged(scores.values()), alpha)}
    for names in pools(scores, alpha):
        own = threshold(merged(scores[name] for name in names), alpha)
        chosen |= dict.fromkeys(names, own)
    return chosen


def merged(parts: Iterable[Sorted]) -> Sorted:
    """The numbers of several lists in one, sorted."""
    return np.sort(np.concatenate([np.zeros(0), *parts]))


@dataclass(frozen=True)
class Spread:
    """Where the measured coverage of a threshold lies in 95 of 100 cases."""

    low: float
    high: float


def measured_interval(hits: int, count: int, confidence: float = 0.95) -> Spread:
    """The exact binomial interval of Clopper and Pearson for a share that was measured."""
    from scipy.stats import beta  # imported here so that predicting does not wait for it

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return Spread(low, high)


def expected_interval(count: int, alpha: float, tested: int, confidence: float = 0.95) -> Spread:
    """The share of `tested` new examples that a threshold from `count` others covers, in most
    cases: a beta-binomial, since both are samples (arXiv 2107.07511, appendix C).
    """
    from scipy.stats import betabinom

    place = rank(count, alpha)
    if place > count:
        return Spread(1.0, 1.0)
    tail = (1 - confidence) / 2
    law = betabinom(tested, place, count + 1 - place)
    return Spread(float(law.ppf(tail)) / tested, float(law.ppf(1 - tail)) / tested)
