"""`tasklm study`: a table or figure of a paper, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tasklm.cli.options import Corpus, Json, Verbose, files_and_options, overrides_of
from tasklm.cli.running import new_tracker, stoppable
from tasklm.console.terminal import say, say_command
from tasklm.errors import RecipeError
from tasklm.storage.json_lines import json_line

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Studies or TOML files; without any, lists all studies.", metavar="NAME..."
    ),
]
Data = Annotated[Path | None, typer.Option(help="Folder with one folder of splits per task.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder; by default runs/NAME, or runs/studies for several. Repeat to continue."
    ),
]
Scale = Annotated[str, typer.Option(help="minutes, small, medium or large.")]
Tasks = Annotated[
    list[str] | None,
    typer.Option(help="Tasks, comma-separated: NAME or NAME=FOLDER; by default all in --data."),
]
Part = Annotated[str, typer.Option(help="This machine's part of the runs, such as 2/8.")]
AtOnce = Annotated[int, typer.Option(help="Number of runs at the same time.", min=1)]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the number of runs, FLOPs, time and disk space, and stop."
    ),
]


def study(
    context: typer.Context,
    words: Names = None,
    data: Data = None,
    corpus: Corpus = None,
    out: Out = None,
    scale: Scale = "minutes",
    tasks: Tasks = None,
    part: Part = "1/1",
    at_once: AtOnce = 1,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Rerun tables or figures of a paper.

    Shows our scores with intervals beside the published ones, and which claims hold. Any recipe
    key is an option, for all rows that do not set it. Several studies share what they have in
    common.

    Example: tasklm study tlm-table-4 --data tasks/ --corpus texts/ --dry-run
    """
    names, options = files_and_options([*(words or []), *context.args])
    if not names:
        _list()
        return
    if data is None:
        raise RecipeError(["--data is missing: a folder with a folder of splits for each task"])
    tracker = new_tracker(verbose)
    with tracker.progress("starting"):  # importing torch takes a while
        from tasklm.studying import flow
        from tasklm.studying.lines import estimates_table
        from tasklm.studying.order import Order, part_of
        from tasklm.studying.study import load_studies

        studies = load_studies(names)
        folder = studies[0].name if len(studies) == 1 else "studies"
        order = Order(
            data=data,
            corpus=tuple(corpus or ()),
            out=out or Path("runs") / folder,
            scale=scale,
            tasks=tuple(",".join(tasks).split(",")) if tasks else (),
            overrides=overrides_of(options),
            part=part_of(part),
            at_once=at_once,
        )
    if dry_run:
        table, total = estimates_table(flow.dry_run(studies, order), at_once)
        Console().print(table)
        say(Console(), total)
        return
    with stoppable(order.out):
        outcomes = flow.run(studies, order, tracker)
    if as_json:
        values = [outcome.to_dict() for outcome in outcomes.values()]
        typer.echo(json_line(values[0] if len(values) == 1 else values))
        return
    for path, outcome in outcomes.items():
        _show(outcome, path / flow.PAGE)


def _list() -> None:
    from tasklm.studying.listing import library_table

    Console().print(library_table())


def _show(outcome: Any, page: Path) -> None:
    """Prints a study that has been run."""
    from tasklm.studying.lines import about, terminal_table

    console = Console()
    console.print(terminal_table(outcome))
    for finding in outcome.findings:
        say(console, finding.sentence())
    for line in about(outcome):
        say(console, f"· {line}", style="dim")
    say_command(console, str(page), "page")
