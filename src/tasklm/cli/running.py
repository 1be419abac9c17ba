"""How the verbs run the flow, completely or up to a step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tasklm.cli.last_resort import traceback_in
from tasklm.cli.options import overrides_of
from tasklm.cli.results import show_scores, show_step_done
from tasklm.cli.watch import watched
from tasklm.console.clock import Clock
from tasklm.console.terminal import say
from tasklm.errors import RecipeError
from tasklm.images.entrance import flow_of
from tasklm.run_folder import RECIPE, is_run
from tasklm.tracking import Tracker

screen = Console(stderr=True)


def load_recipe(path: Path | None, overrides: dict[str, Any]) -> Any:
    """The recipe from a file, or the default one, with the command line's overrides."""
    from tasklm.recipe.toml import load

    return load(path, overrides)


def new_tracker(verbose: bool) -> Tracker:
    """The tracker of a run; under `torchrun` only the first process prints."""
    speaks = os.environ.get("RANK", "0") == "0"
    return Tracker(screen if speaks else None, verbose=verbose)


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Long work in a folder: an interrupt says how to go on, and an unexpected error leaves its
    traceback there.
    """
    try:
        with traceback_in(folder):
            yield
    except KeyboardInterrupt:  # here, because typer would end the process silently
        say(screen, "run the same command to continue", "stopped", "yellow")
        raise typer.Exit(130) from None


def run_flow(
    recipe: Any,
    out: Path,
    as_json: bool,
    tracker: Tracker,
    until: str | None = None,
    watching: bool = False,
) -> None:
    """Runs everything in a new or existing run folder, or an existing one up to `until`."""
    clock = Clock()
    with tracker.progress("starting"):  # importing torch takes a while
        from tasklm.device.ranks import first_of_all
        from tasklm.storage.files import require_own

        run_pipeline = flow_of(recipe).fit
    if until is None:
        require_own(out)
    with stoppable(out), watched(out, watching and first_of_all()):
        scores = run_pipeline(recipe, out, tracker, until or "report", clock)
    if not first_of_all():  # only one of several processes prints
        return
    if scores is not None:
        show_scores(scores, recipe, out, as_json, tracker.verbose, until in (None, "report"))
    elif until is not None:
        show_step_done(screen, until, out)


def run_until(name: str, options: list[str], folder: Path, as_json: bool, verbose: bool) -> None:
    """Runs the remaining steps of a run, up to the given one."""
    if not is_run(folder):
        problem = f"{folder} is not a run folder (no recipe.toml)"
        raise RecipeError([f"{problem}; start one with: tasklm fit … --out {folder}"])
    recipe = load_recipe(folder / RECIPE, overrides_of(options))
    run_flow(recipe, folder, as_json, new_tracker(verbose), until=name)
