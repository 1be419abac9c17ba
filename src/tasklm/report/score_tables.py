"""The part of the report about the scores: all rows on one scale, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import (
    Row,
    Scores,
    Spread,
    flops_text,
    interval_text,
    metric_name,
    over_seeds,
    spread_text,
    time_text,
)
from tasklm.evaluate.task_tables import rows_by_task, score_of, split_of
from tasklm.report.bar_tables import Range, ranges
from tasklm.report.page import Html, el, joined, soft, table

MOST_METRICS = 3  # besides the main one
COSTS = ["FLOPs", "6·N·tokens", "time", "parameters", "passages"]
OF_TEXT = ("6·N·tokens", "passages")
KINDS = {
    "ours": "this model",
    "ensemble": "this model, all seeds",
    "soup": "this model, mean weights",
    "ablation": "ablation",
    "teacher": "teacher",
    "baseline": "baseline",
}


def score_table(scores: Scores | None) -> Html:
    """All rows drawn on one scale, and tables of their scores, other metrics and costs.

    A single table would be wider than a page.
    """
    if scores is None or not scores.rows:
        return Html("")
    names = dict.fromkeys(chain.from_iterable(row.metrics for row in scores.rows))
    others = [name for name in names if name != scores.metric][:MOST_METRICS]
    stage1 = ["stage 1"] if scores.trainings > 1 else []
    metrics = ["dev", "test", *stage1, "each seed", *map(metric_name, others)]
    header = ["model", "what", *metrics, "ours − this", "p", *COSTS]
    cells = [_cells(row, others, bool(stage1)) for row in scores.rows]
    keys = [_keys(row, others, bool(stage1)) for row in scores.rows]
    ours = [number for number, row in enumerate(scores.rows) if row.kind == "ours"]

    def part(columns: Sequence[int], label: str, left: int = 1) -> Html:
        return table(
            [header[at] for at in columns],
            [[row[at] for at in columns] for row in cells],
            left=left,
            strong=ours,
            keys=[[row[at] for at in columns] for row in keys],
            label=label,
        )

    each = header.index("each seed")
    difference = header.index("ours − this")
    seeded = any(_has_several_seeds(row) for row in scores.rows)
    tables = [part([*range(each), difference, difference + 1], "Scores", left=2)]
    tables += _by_task(scores)
    if seeded:
        tables.append(part([0, *range(each, difference)], "Other metrics"))
    elif others:
        tables.append(part([0, *range(each + 1, difference)], "Other metrics"))
    costs = [at for at in range(difference + 2, len(header)) if _has(scores, header[at])]
    tables.append(part([0, *costs], "Costs"))
    return joined([_ranges(scores), *tables, soft(_about(scores))])


def _by_task(scores: Scores) -> list[Html]:
    """A table with a line for each of several tasks and a column for each row."""
    rows = rows_by_task(scores)
    if not rows:
        return []
    split = split_of(scores)
    lines = []
    for number, first in enumerate(rows[0].tasks):
        cells = [spread_text(score_of(row.tasks[number], split)) for row in rows]
        lines.append([first.name, metric_name(first.metric), *cells])
    header = ["task", "metric", *(row.name for row in rows)]
    title = el("h3", f"Each task, {split} × 100")
    return [title, table(header, lines, left=2, label="Each task")]


def _has_several_seeds(row: Row) -> bool:
    score = row.test or row.dev
    return score is not None and len(score.values) > 1


def _has(scores: Scores, cost: str) -> bool:
    """Whether a kind of cost means something: trainings without stages read no passages."""
    return scores.staged or cost not in OF_TEXT


def _about(scores: Scores) -> str:
    """An explanation of the numbers in the tables."""
    means, deviations = "", ""
    if scores.trainings * scores.seeds > 1:
        deviations = " (sample standard deviations)"
    if scores.trainings > 1:
        means = "; in the column stage 1, over the means of its trainings"
    numbers = (
        f"{metric_name(scores.metric)} × 100; "
        f"{over_seeds(scores)}{means}{deviations}. "
        f"In brackets {scores.confidence:.0%} bootstrap intervals; {interval_text(scores)}. "
        "Differences are paired over test examples; the seeds of the two sides are drawn "
        "independently. p ≤ marks the smallest value that this number of resamples can show. "
    )
    if not scores.staged:
        return f"{numbers}FLOPs and time are those of one seed, on average."
    return (
        f"{numbers}FLOPs are counted exactly, forward and backward; "
        "6·N·tokens is the estimate that papers report. "
        "FLOPs and time include selection and, on average, one seed of stages 1 and 2 (for an "
        "ensemble: all seeds)."
    )


def _ranges(scores: Scores) -> Html:
    on_test = any(row.test is not None for row in scores.rows)
    drawn = [(row, spread) for row in scores.rows if (spread := score_on(row, on_test)) is not None]
    if len(drawn) < 2:
        return Html("")
    rows = [Range.of(row.name, spread) for row, spread in drawn]
    strong = [number for number, (row, _) in enumerate(drawn) if row.kind == "ours"]
    split = "test" if on_test else "dev"
    title = el("h3", f"{split} {metric_name(scores.metric)} × 100")
    return joined([title, ranges(rows, strong)])


def _cells(row: Row, others: Sequence[str], several: bool) -> list[Any]:
    metrics = {name: f"{100 * value:.1f}" for name, value in row.metrics.items()}
    return [
        row.name,
        KINDS[row.kind],
        spread_text(row.dev),
        spread_text(row.test),
        *[_stage1_text(row)] * several,
        _each_seed(row),
        *(metrics.get(name, "–") for name in others),
        *_difference_cells(row),
        flops_text(row.flops_exact),
        flops_text(row.flops_6nd),
        time_text(row.seconds),
        count_text(row.parameters),
        count_text(row.selected_passages),
    ]


def _stage1_sd(row: Row) -> float | None:
    score = row.test or row.dev
    return score.stage1_sd if score is not None else None


def _stage1_text(row: Row) -> str:
    sd = _stage1_sd(row)
    return f"± {100 * sd:.1f}" if sd is not None else "–"


def _each_seed(row: Row) -> str:
    """The scores of single seeds, grouped by training of stage 1."""
    score = row.test or row.dev
    if score is None or len(score.values) == 1:
        return "–"
    tunings = len(score.values) // max(1, len(score.stage1))
    values = [f"{100 * value:.1f}" for value in score.values]
    return " | ".join(
        " ".join(values[start : start + tunings]) for start in range(0, len(values), tunings)
    )


def _keys(row: Row, others: Sequence[str], several: bool) -> list[Any]:
    """The sort keys of a row's cells."""
    dev, test = mean_key(row.dev), mean_key(row.test)
    difference: list[Any] = ["", ""]
    if row.against is not None:
        difference = [row.against.difference, row.against.p]
    costs = [row.flops_exact, row.flops_6nd, row.seconds, row.parameters, row.selected_passages]
    return [
        row.name,
        KINDS[row.kind],
        dev,
        test,
        *[_stage1_sd(row) or ""] * several,
        test or dev,
        *(row.metrics.get(name, "") for name in others),
        *difference,
        *costs,
    ]


def _difference_cells(row: Row) -> list[str]:
    if row.against is None:
        return ["–", "–"]
    return [difference_text(row.against), row.against.p_text()]


def mean_key(spread: Spread | None) -> float | str:
    """The sort key of a score in a table."""
    return spread.mean if spread is not None else ""


def score_on(row: Row, on_test: bool) -> Spread | None:
    """The score of a row on test, or else on dev."""
    return row.test if on_test else row.dev


def mean_on(row: Row, on_test: bool) -> float:
    """The mean of a row on test, or else on dev; below all others if there is none."""
    spread = score_on(row, on_test)
    return spread.mean if spread is not None else -math.inf


def count_text(count: int) -> str:
    """A count for a table, or a dash for nothing."""
    return f"{count:,}" if count else "–"


def difference_text(against: Difference) -> str:
    """A difference with its interval: '+4.6 [+1.2, +7.9]'."""
    return f"{100 * against.difference:+.1f} [{100 * against.low:+.1f}, {100 * against.high:+.1f}]"
