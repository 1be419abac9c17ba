"""The verb that follows a run on a local page, also used by `fit --watch` and `run --watch`."""

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
    typer.Option("--watch", help="Follow the run on a local page; its address is printed."),
]


def watch(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    port: Annotated[
        int,
        typer.Option(help="Port of the page on 127.0.0.1; 0: any free one.", min=0, max=65535),
    ] = 0,
) -> None:
    """Follow a run on a local page.

    Shows its step, time left, learning curves, messages and scores (docs/how-to/watching.md).
    Ctrl-C stops the page.

    Example: tasklm watch runs/first
    """
    from tasklm.watch.server import WatchServer

    if not is_run(folder):
        remedy = f"Start one and follow it: tasklm fit … --out {folder} --watch"
        raise RunError(f"{folder} is not a run folder (no recipe.toml). {remedy}")
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a script's background jobs ignore the first one
        signal.signal(number, signal.default_int_handler)
    with WatchServer(folder, port) as server:
        _say(f"watching {folder} at {server.url} (Ctrl-C stops the page, not the run)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            _say("page stopped; the run is not affected")


@contextmanager
def watched(folder: Path, wanted: bool) -> Iterator[None]:
    """Shows a run on a local page, if wanted, while the block inside runs it."""
    if not wanted:
        yield
        return
    from tasklm.watch.server import WatchServer

    with WatchServer(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(f"watch the run at {server.url}")
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
