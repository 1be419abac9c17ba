"""Medians over seeds, and tests of the differences between strategies."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasklm.evaluate.several_tests import holm, mann_whitney

MEAN = "mean"  # over tasks


@dataclass(frozen=True)
class Strategy:
    """The scores of a way to train, in points: task → those of all seeds."""

    title: str
    values: dict[str, list[float]]

    @property
    def averages(self) -> list[float]:
        """The mean over tasks of each seed."""
        rows = zip(*self.values.values(), strict=True)
        return [statistics.fmean(row) for row in rows]

    def seeds(self, column: str) -> list[float]:
        """The scores of all seeds on a task, or on their mean."""
        return self.averages if column == MEAN else self.values[column]

    def median(self, column: str) -> float:
        """The median over seeds."""
        return statistics.median(self.seeds(column))


@dataclass(frozen=True)
class Difference:
    """How far the medians of two strategies are apart, and the chance of that under no difference.

    None where there are too few seeds to tell.
    """

    points: float
    p: float | None


def strategy_of(
    title: str, runs: Sequence[Mapping[str, Any]], tasks: Sequence[str], split: str
) -> Strategy | None:
    """The scores of a strategy that is one run of all tasks, or one of each.

    Tasks without a labelled test set have no column there; None where no task has any.
    """
    together: dict[str, Any] = {}
    for run in runs:
        together.update(run)
    values = {task: together[task][split] for task in tasks if split in together.get(task, {})}
    return Strategy(title, values) if values else None


def differences(one: Strategy, other: Strategy) -> dict[str, Difference]:
    """The difference of two strategies on the mean and on each task.

    Each p is that of the Mann-Whitney U test on the seeds; those of the tasks are corrected by
    Holm-Bonferroni for their number.
    """
    tasks = list(one.values)
    raw = {column: mann_whitney(one.seeds(column), other.seeds(column)) for column in tasks}
    known = {column: p for column, p in raw.items() if p is not None}
    corrected: dict[str, float | None] = dict.fromkeys(tasks)
    corrected |= dict(zip(known, holm(list(known.values())), strict=True))
    corrected[MEAN] = mann_whitney(one.averages, other.averages)
    return {
        column: Difference(one.median(column) - other.median(column), corrected[column])
        for column in (MEAN, *tasks)
    }


def corrected(tests: Mapping[str, Difference]) -> dict[str, Difference]:
    """Differences of one table whose p-values are corrected for their number."""
    known = {name: one.p for name, one in tests.items() if one.p is not None}
    p_values = dict(zip(known, holm(list(known.values())), strict=True))
    return {name: Difference(one.points, p_values.get(name)) for name, one in tests.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, and an empty one."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def difference_text(one: Difference) -> str:
    """A difference for a table: '+0.4 (p 0.031)'."""
    p = "–" if one.p is None else f"{one.p:.3f}"
    return f"{one.points:+.1f} (p {p})"
