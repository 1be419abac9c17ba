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
    from tasklm.recipe.schema import Recipe
    from tasklm.tasks.examples import Finding

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
            console, ["tasklm", "predict", str(out / "model"), _something_to_predict(recipe, out)]
        )
    else:
        show_next(console, _after("evaluate", out))


def show_step_done(console: Console, step: str, out: Path) -> None:
    """Reports that a single step is done, and the command for the next one."""
    say(console, f"{step}, in {out}", "done")
    show_next(console, _after(step, out))


def show_next(console: Console, words: Sequence[str]) -> None:
    """Prints the command to type next."""
    say_command(console, shlex.join(words).replace("'a text'", '"a text"'), "next")


def _after(step: str, out: Path) -> list[str]:
    """The command for the step after this one."""
    from tasklm.pipeline.flow import STEPS

    return ["tasklm", STEPS[STEPS.index(step) + 1], str(out)]


def _something_to_predict(recipe: Recipe, out: Path) -> str:
    """A text if the model takes single texts, else a file that it can read."""
    from tasklm.errors import DataError
    from tasklm.run_folder import MODEL, recipe_of
    from tasklm.storage.files import read_json
    from tasklm.tasks.base import TASKS

    values = read_json(out / MODEL / "config.json")["task"]
    try:
        TASKS.get(values["kind"]).from_dict(values).asked("a text")
    except DataError:
        return recipe.data.test or recipe.data.dev or recipe.data.train
    pair = "," in recipe_of(out).data.text_column
    return recipe.data.test or recipe.data.dev or recipe.data.train if pair else "a text"


def show_findings(findings: Sequence[Finding]) -> None:
    """Prints the audit: errors first, then warnings, then passed checks."""
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
    say(console, f"{errors} errors, {warnings} warnings, {fine} checks passed")
