"""`tasklm update`: new examples, classes and text for a model that is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasklm.cli.images import refuse_image_folders
from tasklm.cli.options import Json, Verbose, overrides_of
from tasklm.cli.results import show_next
from tasklm.cli.running import new_tracker, stoppable
from tasklm.console.clock import Clock
from tasklm.console.terminal import say, say_command
from tasklm.run_folder import MODEL, REPORT
from tasklm.storage.json_lines import json_line


def update_run(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Run folder of a finished run.")],
    train: Annotated[
        str | None, typer.Option(help="Labelled file with new rows, laid out as that of the run.")
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(help="Further development set; by default a share of the new rows."),
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Further test set, such as of new classes.")
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", help="New raw text. May be repeated.")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Teach a trained model new examples, classes or text.

    Takes a part of the first run's time. Shows the scores before and after on the same test set,
    and lists the predictions that changed. The updated model replaces the one in model/ unless
    it is worse on dev; the first one stays in updates/0/model.

    Example: tasklm update runs/first --train more.csv
    """
    refuse_image_folders([folder], "update", "train again with all images: tasklm fit")
    clock, tracker = Clock(), new_tracker(verbose)
    settings = overrides_of(context.args)
    with tracker.progress("starting"):
        from tasklm.updating.flow import update
        from tasklm.updating.lines import HEADER, rows_of, sentences, title_of
        from tasklm.updating.reading import Request
        from tasklm.updating.record import folder_of

    request = Request(train or "", dev or "", test or "", tuple(corpus or ()), settings)
    with stoppable(folder):
        result = update(folder, request, tracker, clock)
    if as_json:
        typer.echo(json_line(result.to_dict()))
        return
    console = Console()
    table = Table(title=Text(title_of(result)), box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(HEADER):
        table.add_column(name, justify="right" if place else "left", no_wrap=place > 0)
    for row in rows_of(result):
        table.add_row(*map(Text, row))
    console.print(table)
    for sentence in sentences(result):
        say(console, sentence)
    say_command(console, str(folder_of(folder, result.number) / REPORT), "report")
    show_next(console, ["tasklm", "predict", str(folder / MODEL), "a text"])
