"""The scores of several tasks, one by one, beside those of a model for each."""

from __future__ import annotations

from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tasklm.evaluate.scores import Row, Scores, Spread, TaskScore, metric_name
from tasklm.evaluate.several_tests import holm

OWN_MODELS = "a model for each task"  # the row of the tasks' own models


def rows_by_task(scores: Scores) -> list[Row]:
    """The rows that have scores of single tasks."""
    return [row for row in scores.rows if row.tasks]


def split_of(scores: Scores) -> str:
    """The split that scores of single tasks are of."""
    tested = any(one.test is not None for row in rows_by_task(scores) for one in row.tasks)
    return "test" if tested else "dev"


def scores_of_task(scores: Scores, name: str) -> Scores:
    """The scores of one of several tasks, with the costs of all; those of a single task as they
    are.
    """
    if not rows_by_task(scores):
        return scores
    rows, metric = [], scores.metric
    for row in rows_by_task(scores):
        own = next((one for one in row.tasks if one.name == name), None)
        if own is not None:
            metric = own.metric
            rows.append(replace(row, dev=own.dev, test=own.test, against=own.against, tasks=[]))
    return replace(scores, metric=metric, rows=rows)


def score_of(score: TaskScore, split: str) -> Spread | None:
    """The score of a task on a split."""
    return score.test if split == "test" else score.dev


def task_table(scores: Scores) -> Table | None:
    """A column for each task, for the terminal; None for one task."""
    rows = rows_by_task(scores)
    if not rows:
        return None
    split = split_of(scores)
    metrics = ", ".join(f"{one.name} {metric_name(one.metric)}" for one in rows[0].tasks)
    drawn = Table(
        title=Text(f"each task, {split} × 100, mean over seeds"),
        title_style="bold",
        title_justify="left",
        caption=Text(metrics),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    drawn.add_column("model", overflow="fold")
    for one in rows[0].tasks:
        drawn.add_column(one.name, justify="right", overflow="fold")
    for row in rows:
        cells = [_mean(score_of(one, split)) for one in row.tasks]
        style = "bold" if row.kind == "ours" else None
        drawn.add_row(*map(Text, [row.name, *cells]), style=style)
    return drawn


def _mean(score: Spread | None) -> str:
    """A score without its spread: a column for each task leaves no room."""
    return "–" if score is None else f"{100 * score.mean:.1f}"


def beside_own_models(scores: Scores) -> str:
    """How many tasks are better and worse than their own models, as a sentence; "" without these.

    On test a difference counts if Holm's correction over the tasks leaves it significant.
    """
    ours = scores.ours
    single = next((row for row in scores.rows if row.name == OWN_MODELS), None)
    if ours is None or single is None or not single.tasks:
        return ""
    tested = [one.against for one in single.tasks if one.against is not None]
    if len(tested) < len(single.tasks):
        ahead = [
            mine.name
            for mine, own in zip(ours.tasks, single.tasks, strict=True)
            if mine.dev is not None and own.dev is not None and mine.dev.mean > own.dev.mean
        ]
        return f" On dev {len(ahead)} of {len(single.tasks)} tasks are ahead of their own model."
    level = 1 - scores.confidence
    sure = [p < level for p in holm([one.p for one in tested])]
    better = _counted(
        single, [s and one.difference > 0 for s, one in zip(sure, tested, strict=True)]
    )
    worse = _counted(
        single, [s and one.difference < 0 for s, one in zip(sure, tested, strict=True)]
    )
    return (
        f" Of the {len(tested)} tasks, {better} better and {worse} worse than with a model of "
        "their own (significant on these test examples, corrected for the number of tasks)."
    )


def _counted(row: Row, wanted: list[bool]) -> str:
    """How many of the tasks, and which, with the verb."""
    names = [one.name for one, want in zip(row.tasks, wanted, strict=True) if want]
    if not names:
        return "none is"
    return f"{len(names)} ({', '.join(names)}) {'is' if len(names) == 1 else 'are'}"
