"""The verb that says which texts to label next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tasklm.cli.images import refuse_image_folders
from tasklm.cli.options import RunFolder, TaskName, TextColumn
from tasklm.console.terminal import say
from tasklm.tracking import Tracker

screen = Console(stderr=True)


def label_next(
    folder: RunFolder,
    texts: Annotated[
        list[str],
        typer.Option(
            "--from",
            help="Unlabelled texts: file or folder. May be repeated.",
        ),
    ],
    count: Annotated[int, typer.Option("--n", help="Number of texts to choose.")] = 100,
    out: Annotated[
        Path | None, typer.Option(help="File to write, .csv or .jsonl; by default CSV is printed.")
    ] = None,
    task: TaskName = None,
    text_column: TextColumn = None,
) -> None:
    """Choose the texts most worth labelling.

    Writes them with an empty label column to fill in; tasklm fit then reads the file.

    Example: tasklm label-next runs/first --from texts/ --n 100 --out next.csv
    """
    from tasklm.labelling.sheet import lines_of, require_format, write_sheet
    from tasklm.labelling.suggesting import Labeller

    refuse_image_folders([folder], "label-next", "images are not ranked by how unsure a model is")
    require_format(out)
    labeller = Labeller.of(folder, task or "")
    pile = labeller.pile(texts, text_column or "")
    tracker = Tracker(screen)
    suggestions = labeller.from_pile(pile, count, tracker)
    if out is None:
        for line in lines_of(suggestions, ".csv"):
            sys.stdout.write(line)
    else:
        write_sheet(suggestions, out)
        say(screen, str(out), "wrote")
    say(screen, suggestions.sentence())
    say(screen, labeller.outlook(tracker), "outlook")
