"""What `check --files` shows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from tasklm.tracking import Tracker

screen = Console(stderr=True)


def scrub(folder: Path, as_json: bool) -> None:
    """Shows which files of a run or a model are damaged and what to do; exits with 1 where there
    are any."""
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
