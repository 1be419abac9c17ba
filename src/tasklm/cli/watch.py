"""The verb that follows a run on a local page, and the same for the time of `fit` and `run`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tasklm.console.terminal import say
from tasklm.errors import RunError
from tasklm.run_folder import is_run

screen = Console(stderr=True)
Watch = Annotated[
    bool,
    typer.Option(
        "--watch", help="Show how the run is going on a local page, whose address is printed."
    ),
]


def watch(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    port: Annotated[
        int,
        typer.Option(help="Port of the page on 127.0.0.1; 0 takes a free one.", min=0, max=65535),
    ] = 0,
) -> None:
    """Follow a run on a local page.

    Its step, time left, learning curves, messages and scores (docs/how-to/watching.md). Ctrl-C ends
    the page.

    Example: tasklm watch runs/first
    """
    from tasklm.watch.server import WatchServer

    if not is_run(folder):
        remedy = f"Start one, followed from its start: tasklm fit … --out {folder} --watch"
        raise RunError(f"{folder} is not a run folder (no recipe.toml). {remedy}")
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # the first is ignored in what a script starts in the background
        signal.signal(number, signal.default_int_handler)
    with WatchServer(folder, port) as server:
        _say(f"{folder} is shown at {server.url} (Ctrl-C ends the page, not the run)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _say("the page has ended; the run was not touched")


@contextmanager
def watched(folder: Path, wanted: bool) -> Iterator[None]:
    """Shows a run on a local page, where this is wanted, while what is inside runs it."""
    if not wanted:
        yield
        return
    from tasklm.watch.server import WatchServer

    with WatchServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(f"the run is shown at {server.url}")
        try:
            yield
            server.show_the_end()
        except Exception:
            server.show_the_end()
            raise
        finally:
            server.shutdown()


def _say(text: str) -> None:
    say(screen, text)
