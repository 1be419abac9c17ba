"""The output at the end of a run: scores, verdict, and the next command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from tasklm.console.terminal import say, say_command

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.evaluate.scores import Scores
    from tasklm.recipe.data_sections import Data
    from tasklm.recipe.schema import Recipe
    from tasklm.tasks.base import Task
    from tasklm.tasks.examples import Finding

TEXT, PICTURE = "a text", "photo.png"  # to predict
STYLES = {"error": "red", "warning": "yellow", "ok": "green"}  # of the levels of findings


def show_scores(
    scores: Scores, recipe: Recipe, out: Path, as_json: bool, verbose: bool, reported: bool
) -> None:
    """Prints scores, verdict, where model and report are, and the next command; or JSON."""
    from tasklm.evaluate.scores import table, to_dict
    from tasklm.evaluate.task_tables import task_table

    if as_json:
        typer.echo(json.dumps(to_dict(scores), ensure_ascii=False))
        return
    console = Console()
    console.print()
    console.print(table(scores, costs=verbose))
    if (of_tasks := task_table(scores)) is not None:
        console.print()
        console.print(of_tasks)
    console.print()
    say(console, scores.verdict)
    console.print()
    say_command(console, str(out / "model"), "model")
    if reported:
        say_command(console, str(out / "report.html"), "report")
        show_next(
            console, ["tasklm", "predict", str(out / "model"), *_what_to_predict(recipe, out)]
        )
    else:
        show_next(console, _after("evaluate", out))


def show_step_done(console: Console, step: str, out: Path) -> None:
    """Reports that a single step is done, and the command for the next one."""
    say(console, f"{step}, in {out}", "done")
    show_next(console, _after(step, out))


def show_next(console: Console, words: Sequence[str]) -> None:
    """Prints the command to type next."""
    say_command(console, shlex.join(words).replace(f"'{TEXT}'", f'"{TEXT}"'), "next")


def _after(step: str, out: Path) -> list[str]:
    """The command for the step after this one."""
    from tasklm.pipeline.flow import STEPS

    return ["tasklm", STEPS[STEPS.index(step) + 1], str(out)]


def _what_to_predict(recipe: Recipe, out: Path) -> list[str]:
    """A text if the model takes single texts, else a file that it can read; of several tasks the
    first that takes a text.
    """
    from tasklm.recipe.image import IMAGE
    from tasklm.run_folder import MODEL, recipe_of
    from tasklm.storage.files import read_json
    from tasklm.tasks.base import TASKS
    from tasklm.tasks.readers.several import columns_of
    from tasklm.tasks.several import members_of

    values = read_json(out / MODEL / "config.json")["task"]
    if values["kind"] == IMAGE:
        return [PICTURE]
    task = TASKS.get(values["kind"]).from_dict(values)
    members = members_of(task)
    if not members:
        return [_text_or_file(task, recipe_of(out).data.text_column, recipe.data)]
    columns = columns_of(recipe)
    choices = []
    for member in members:
        data = columns[member.name]
        choices.append(["--task", member.name, _text_or_file(member.task, data.text_column, data)])
    return min(choices, key=lambda words: words[-1] != TEXT)


def _text_or_file(task: Task, text_column: str, data: Data) -> str:
    """A text if a task takes single texts, else the file that was read last in training."""
    from tasklm.errors import DataError

    try:
        task.example_of(TEXT)
    except DataError:
        return data.test or data.dev or data.train
    if "," in text_column:
        return data.test or data.dev or data.train
    return TEXT


def show_findings(findings: Sequence[Finding]) -> None:
    """Prints the audit: errors first, then warnings, then passed checks."""
    from tasklm.pipeline.summaries import plural

    console, levels = Console(), ("error", "warning", "ok")
    for finding in sorted(findings, key=lambda finding: levels.index(finding.level)):
        examples = "".join(f"\n· {example}" for example in finding.examples)
        say(
            console,
            f"{finding.check}: {finding.message}{examples}",
            finding.level,
            STYLES[finding.level],
        )
        if finding.level != "ok" and console.is_terminal:
            console.print()
    errors, warnings, fine = (
        sum(finding.level == level for finding in findings) for level in levels
    )
    console.print()
    counts = (plural(errors, "error"), plural(warnings, "warning"), plural(fine, "check"))
    say(console, f"{', '.join(counts)} passed")
