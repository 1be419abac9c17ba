"""Tests of several hypotheses at once, and of the scores of several seeds.

The leading run of a comparison is tested against each other one: of twenty such tests one is
"significant" at 5 % by chance. Holm's correction keeps the chance of any wrong claim below the
level, whatever the tests have to do with one another.
"""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 3  # seeds of either run: fewer cannot show anything


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected by Holm-Bonferroni, in the same order."""
    count = len(p_values)
    corrected, highest = [0.0] * count, 0.0
    for rank, place in enumerate(sorted(range(count), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (count - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The two-sided p of the Mann-Whitney U test that the scores of two sets of seeds differ.

    None if either has fewer than FEWEST seeds.
    """
    if min(len(one), len(other)) < FEWEST:
        return None
    from scipy.stats import mannwhitneyu  # takes a second to import

    return float(mannwhitneyu(one, other, alternative="two-sided").pvalue)
