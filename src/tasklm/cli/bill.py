"""The verb that shows what a model has read, and verifies it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasklm.cli.images import refuse_image_folders
from tasklm.cli.options import Json
from tasklm.console.terminal import say
from tasklm.errors import RecipeError
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.bill.record import Bill

screen = Console(stderr=True)


def bill(
    folder: Annotated[Path, typer.Argument(help="Run folder, export or saved model.")],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Hash all files again; exit with 1 if one is missing or has changed.",
        ),
    ] = False,
    recipe: Annotated[
        Path | None,
        typer.Option(help="Write a recipe to this file that trains the same model again."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a model has read.

    Lists every source with its licence, and how much of it the model has read.

    Example: tasklm bill runs/first --verify
    """
    from tasklm.bill.record import read_bill

    refuse_image_folders([folder], "bill", "the model has read no text; its report names its data")
    if verify and recipe is not None:
        raise RecipeError(["bill takes either --verify or --recipe"])
    if verify:
        show_verification(folder, as_json)
        return
    own = read_bill(folder)
    if recipe is not None:
        _write_recipe(own, recipe)
    if as_json:
        typer.echo(json.dumps(own.to_dict(), ensure_ascii=False))
    elif recipe is None:
        show_bill(own)


def show_bill(own: Bill) -> None:
    """Prints the table of sources, and what it does not say."""
    from tasklm.bill.lines import HEADER, rows_of, sentences

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(HEADER):
        table.add_column(name, justify="right" if place > 3 else "left", overflow="fold")
    for row in rows_of(own):
        table.add_row(*map(Text, row.cells()))
    console.print(table)
    for sentence in sentences(own):
        say(console, sentence)


def show_verification(folder: Path, as_json: bool) -> None:
    """Prints what is not as the bill says; exits with 1 if anything is."""
    from tasklm.pipeline.bill_check import verify_bill

    result = verify_bill(folder, Tracker(screen))
    if as_json:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False))
    else:
        for one in result.problems:
            typer.echo(f"{one.path} ({one.role}): {one.problem}")
        for one in result.unchecked:
            typer.echo(f"{one.path} ({one.role}) was not checked: {one.problem}")
        state = "all are as the bill says"
        if result.problems:
            state = f"{len(result.problems)} differ from the bill"
        typer.echo(f"{result.files:,} files, {result.bytes / 1e6:,.1f} MB: {state}")
    if result.problems:
        raise typer.Exit(1)


def _write_recipe(own: Bill, path: Path) -> None:
    from tasklm.storage.files import write_text

    if path.exists():
        raise RecipeError([f"--recipe {path}: the file exists; name another one"])
    write_text(path, own.recipe)
    say(screen, str(path), "wrote")
