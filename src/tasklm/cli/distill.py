"""`tasklm distill`: a model that finished runs teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasklm.cli.images import refuse_image_folders
from tasklm.cli.options import (
    Compare,
    Json,
    Minutes,
    Verbose,
    files_and_options,
    overrides_of,
)
from tasklm.cli.running import new_tracker, run_flow
from tasklm.cli.watch import Watch


def distill(
    words: Annotated[
        list[str],
        typer.Argument(help="Finished run; predictions of several are averaged.", metavar="RUN..."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the new run.")] = Path("runs/distilled"),
    minutes: Minutes = None,
    compare: Compare = None,
    watching: Watch = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Train a model taught by finished runs.

    Turns several seeds into one model, or a large model into a small one.

    The recipe is that of the first run; any of its keys is an option: --section.key value.

    Example: tasklm distill runs/first --out runs/small --model.size mini --compare no-teacher
    """
    tracker = new_tracker(verbose)
    folders, options = files_and_options(words)
    refuse_image_folders(map(Path, folders), "distill", "models of images cannot be distilled")
    changed = {"budget__minutes": minutes, "evaluate__compare": compare}
    overrides = overrides_of(options, **changed)
    with tracker.progress("starting"):  # importing torch takes a while
        from tasklm.pipeline.teachers import student_of

    run_flow(student_of(folders, overrides), out, as_json, tracker, watching=watching)
