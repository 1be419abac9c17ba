"""A study as rows of text, for the terminal, the page and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tasklm.console.durations import duration
from tasklm.evaluate.scores import flops_text, metric_name, spread_text
from tasklm.studying.estimates import Estimate
from tasklm.studying.listing import drawn
from tasklm.studying.results import Cell, Outcome
from tasklm.studying.study import AVERAGE

NONE, PUBLISHED = "–", "published"
BESIDE = 2  # tasks whose columns a terminal has room for


def header(outcome: Outcome) -> list[str]:
    """Two columns for each task: ours, and what was published."""
    names = ["row"]
    for task in outcome.tasks:
        names += [task, PUBLISHED]
    if len(outcome.tasks) > 1:
        names += [AVERAGE, PUBLISHED]
    return [*names, "FLOPs of a run"]


def rows(outcome: Outcome) -> list[list[str]]:
    """A row for each one of the study."""
    table = []
    for line in outcome.study.lines_shown:
        cells = outcome.cells_of(line)
        row = [line.name]
        for cell in cells:
            row += [ours_text(cell), published_text(cell.published)]
        if len(cells) > 1:
            ours, published = outcome.average_of(line)
            row += [mean_text(ours), mean_text(published)]
        table.append([*row, _flops_text(cells)])
    return table


def ours_text(cell: Cell) -> str:
    """Our score: the mean over seeds ± their standard deviation."""
    if cell.ours is None:
        return NONE
    return spread_text(cell.ours.test or cell.ours.dev)


def published_text(score: float | None) -> str:
    """A published score."""
    if score is None:
        return NONE
    return f"{score:g}"


def mean_text(score: float | None) -> str:
    """A mean over tasks."""
    if score is None:
        return NONE
    return f"{score:.1f}"


def _flops_text(cells: Sequence[Cell]) -> str:
    """The mean FLOPs of a row's runs."""
    known = [cell.ours.flops_exact for cell in cells if cell.ours is not None]
    if not known:
        return NONE
    return flops_text(sum(known) / len(known))


def about(outcome: Outcome) -> list[str]:
    """What a reader of the table must know."""
    study = outcome.study
    scored = [cell for cell in outcome.cells if cell.ours is not None]
    metrics = {cell.task: f"{metric_name(cell.metric)} on {cell.split}" for cell in scored}
    listed = ", ".join(f"{task} {metric}" for task, metric in metrics.items())
    given = "".join(f" --{key} {value}" for key, value in outcome.given.items())
    with_keys = f", with{given}" if given else ""
    lines = [
        f"Ours × 100, mean ± sd of seeds: {listed}. Scale “{outcome.scale}”{with_keys}.",
        f"Published: {study.source}, on {study.split}, at the paper's own scale: compare how rows "
        "differ, not how high they are.",
        f"Differences are paired over the same examples and seeds; intervals are "
        f"{outcome.confidence:.0%}, and the mean over tasks takes these as independent.",
    ]
    notes = {line.name: line.note for line in study.lines if line.note}
    lines += [f"{name}: {note}." for name, note in notes.items()]
    lines += [f"Not here: {text}." for text in study.missing]
    failed = [cell for cell in outcome.cells if cell.problem]
    return [*lines, *(f"{cell.task}, {cell.line}: {cell.problem}" for cell in failed)]


def terminal_table(outcome: Outcome) -> Table:
    """The table for the terminal; of many tasks, one below the other."""
    title = outcome.study.title
    if len(outcome.tasks) <= BESIDE:
        return drawn(title, header(outcome), rows(outcome))
    lines = outcome.study.lines_shown
    cells = []
    for place, task in enumerate(outcome.tasks):
        own = [(line.name, outcome.cells_of(line)[place]) for line in lines]
        cells += [
            [task, name, ours_text(cell), published_text(cell.published)] for name, cell in own
        ]
    means = [(line.name, *outcome.average_of(line)) for line in lines]
    cells += [[AVERAGE, name, mean_text(ours), mean_text(theirs)] for name, ours, theirs in means]
    return drawn(title, ["task", "row", "ours", PUBLISHED], cells, left=2)


def estimates_table(estimates: Sequence[Estimate], at_once: int) -> tuple[Table, str]:
    """The runs with their costs, and the sum in a sentence."""
    cells = [
        [
            one.job.title,
            flops_text(one.flops),
            duration(one.seconds, rough=True),
            f"{one.bytes / 1e6:,.0f} MB",
            ("", "done")[one.done],
        ]
        for one in estimates
    ]
    left = [one for one in estimates if not one.done]
    seconds = sum(one.seconds for one in left) / at_once
    disk = sum(one.bytes for one in left) / 1e9
    total = (
        f"{len(left)} of {len(estimates)} runs to do: about "
        f"{flops_text(sum(one.flops for one in left))} FLOPs, "
        f"{duration(seconds, rough=True)} on this machine, {disk:.1f} GB of disk; less where runs "
        "share steps"
    )
    table = drawn("before training", ["run", "FLOPs", "time", "disk", ""], cells)
    return table, total
