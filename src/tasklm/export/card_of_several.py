"""The parts of a model card that a file with several tasks has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklm.console.markdown import code, plain
from tasklm.evaluate.scores import Scores, metric_name, spread_text
from tasklm.evaluate.task_tables import rows_by_task, score_of, split_of
from tasklm.export.record import Exported
from tasklm.export.source import Source
from tasklm.recipe.schema import Recipe
from tasklm.tasks.members import Member
from tasklm.tasks.readers.several import named_path
from tasklm.tasks.several import ALL, members_of

LABELS_SHOWN = 50


def labels_text(labels: list[str]) -> str:
    """The names of labels, of which many are cut."""
    names = ", ".join(code(label) for label in labels[:LABELS_SHOWN])
    if len(labels) > LABELS_SHOWN:
        names += " …"
    return names


def pipelines(source: Source) -> list[str]:
    """The line for the kind of pipeline, where all tasks have the same."""
    own = {_there(member).pipeline for member in members_of(source.task)}
    return [f"pipeline_tag: {one}" for one in own if len(own) == 1]


def outputs_text(source: Source) -> str:
    """What each output of the file is."""
    lines = []
    for member in members_of(source.task):
        shape = "(rows, length, tags)" if _there(member).of_words else f"(rows, {member.outputs})"
        line = f"- {code(member.name)} {shape}, kind `{member.task.kind}`: {_there(member).meaning}"
        if member.task.labels:
            line += f" Labels, in the order of the logits: {labels_text(member.task.labels)}."
        lines.append(line)
    return "\n".join(["The outputs of `model.onnx`, each the logits of a task:", "", *lines])


def task_files(source: Source, recipe: Recipe) -> list[str]:
    """Where the examples of each task come from."""
    entries = dict(map(named_path, recipe.several.tasks))
    lines = []
    for member in members_of(source.task):
        path = entries.get(member.name)
        place = "" if path is None else f" from {code(path.name)}"
        lines.append(f"- task {code(member.name)}{place}")
    return lines


def task_scores(scores: Scores) -> str:
    """A table with a column for each task."""
    rows, split = rows_by_task(scores), split_of(scores)
    if not rows:
        return ""
    names = [f"{plain(one.name)} ({plain(metric_name(one.metric))})" for one in rows[0].tasks]
    lines = [f"| {split} × 100 | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for row in rows:
        cells = [spread_text(score_of(one, split)) for one in row.tasks]
        lines.append(f"| {plain(row.name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def task_losses(dev: Mapping[str, Any]) -> str:
    """The scores of each task on dev before and after."""
    lines = []
    for name, one in dev.get("tasks", {}).items():
        both = f"{100 * one['model']:.2f} → {100 * one['exported']:.2f}"
        lines.append(f"{code(name)} {both} ({plain(metric_name(one['metric']))})")
    return f"By task: {', '.join(lines)}." if lines else ""


def command_text(exported: Exported) -> str:
    """How tasklm itself is asked."""
    name = exported.outputs[0]
    every = f'`tasklm predict FOLDER --task {ALL} "a text"`'
    return f"Or, from a text to the answers of all tasks: {every}, or of one: `--task {name}`."


def _there(member: Member) -> Any:
    there = member.task.elsewhere
    assert there is not None  # others are not exported
    return there
