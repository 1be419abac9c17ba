"""What `check` shows: findings in the data, or damaged files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from tasklm.cli.last_resort import traceback_in
from tasklm.cli.results import show_findings
from tasklm.images.entrance import flow_of
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.recipe.schema import Recipe

screen = Console(stderr=True)


def audit(recipe: Recipe, out: Path, as_json: bool) -> None:
    """Shows the problems of the data; exits with 1 if there are errors."""
    from tasklm.storage.files import require_own

    require_own(out)
    with traceback_in(out):
        findings = flow_of(recipe).check(recipe, out, Tracker(screen))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        show_findings(findings)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def scrub(folder: Path, as_json: bool) -> None:
    """Lists the damaged files of a run or a model; exits with 1 if there are any."""
    from tasklm.pipeline.file_check import check_files

    result = check_files(folder, Tracker(screen))
    if as_json:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False))
    else:
        for damage in result.damaged:
            typer.echo(f"{damage.file} is damaged ({damage.problem}). {damage.remedy}")
        for unlisted in result.without_checksums:
            typer.echo(f"{unlisted} has no checksums: an earlier version wrote it.")
        state = f"{len(result.damaged)} damaged" if result.damaged else "none is damaged"
        typer.echo(f"{result.files:,} files, {result.bytes / 1e6:,.1f} MB: {state}")
    if result.damaged:
        raise typer.Exit(1)
