"""`tasklm compare`: contestants on one task, and which to use when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tasklm.cli.images import refuse_image_recipe
from tasklm.cli.options import (
    Corpus,
    Dev,
    Json,
    LabelColumn,
    RecipeFile,
    Test,
    TextColumn,
    Train,
    Verbose,
    Without,
    data_options,
    overrides_of,
)
from tasklm.cli.running import load_recipe, new_tracker, stoppable
from tasklm.console.terminal import say, say_command
from tasklm.storage.json_lines import json_line

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help=(
            "Contestants, comma-separated: majority, tfidf, hashed, static, "
            "tasklm, run=FOLDER, onnx=FOLDER, or NAME=FOLDER for a downloaded "
            "encoder; by default all that need no folder. May be repeated."
        ),
    ),
]


def compare_contestants(
    context: typer.Context,
    train: Train,
    corpus: Corpus = None,
    dev: Dev = None,
    test: Test = None,
    contestants: With = None,
    minutes: Annotated[float, typer.Option(help="Time limit for each contestant.")] = 20.0,
    out: Annotated[
        Path, typer.Option(help="Folder; repeat the command to continue, or to add contestants.")
    ] = Path("compare"),
    recipe: RecipeFile = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    without: Without = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compare tasklm with other kinds of models on your data.

    Shows score, size, latency and cost of each side by side, and says which to use when. Nothing is
    downloaded.

    Example: tasklm compare train.csv --test test.csv --corpus texts/ --with tfidf,static,tasklm
    --minutes 20
    """
    data = data_options(train, corpus, dev, test, text_column, label_column)
    overrides = overrides_of(context.args, **data, budget__minutes=minutes, data__without=without)
    loaded, tracker = load_recipe(recipe, overrides), new_tracker(verbose)
    refuse_image_recipe(loaded, "compare", "its contestants read text")
    with tracker.progress("starting"):  # importing torch takes a while
        from tasklm.comparing.entries import USUAL, entries_of
        from tasklm.comparing.flow import PAGE, compare
        from tasklm.comparing.table import notes, tables

        entries = entries_of(",".join(contestants or USUAL).split(","))
    with stoppable(out):
        comparison = compare(loaded, entries, out, tracker)
    if as_json:
        typer.echo(json_line(comparison.to_dict()))
        return
    console = Console()
    for table in tables(comparison, console.width):
        console.print()
        console.print(table)
    console.print()
    for line in comparison.advice:
        say(console, line)
    console.print()
    for line in notes(comparison):
        say(console, f"· {line}", style="dim")
    console.print()
    say_command(console, str(out / PAGE), "page")
