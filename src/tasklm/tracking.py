"""One event stream → progress bars, events.jsonl and other sinks.

Every part of tasklm reports through a `Tracker`: named events with plain values, and progress of long work with
its rate and time left. What a sink does with them is the sink's business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Bar:
    """Progress of one piece of long work; `advance` is cheap enough to call per item."""

    def __init__(self, display: Progress | None, task: TaskID | None) -> None:
        self._display, self._task = display, task

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Moves the bar; `note` stands behind it (rate, loss …)."""
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, amount)
            if note:
                self._display.update(self._task, note=note)

    def at(self, position: float, note: str = "") -> None:
        """Moves the bar to a position."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, completed=position, note=note)

    def total(self, amount: float) -> None:
        """Sets how much work there is in all."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, total=amount)


class Sink(Protocol):
    """Receives every event."""

    def event(self, name: str, values: dict[str, Any]) -> None: ...


class EventFile:
    """Appends events to a JSONL file, one line each, with the time in seconds since the epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def event(self, name: str, values: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": name, "time": round(time.time(), 3), **values}, ensure_ascii=False) + "\n")


class Tracker:
    """Sends events to sinks, messages to the terminal, and draws progress bars when `console` is given."""

    def __init__(self, console: Console | None = None, sinks: list[Sink] | None = None) -> None:
        self.console = console
        self.sinks = sinks or []
        self._display: Progress | None = None

    def event(self, name: str, **values: Any) -> None:
        """Records one event in every sink."""
        for sink in self.sinks:
            sink.event(name, values)

    def say(self, message: str) -> None:
        """Tells the person at the terminal something, and records it."""
        self.event("message", text=message)
        if self.console is not None:
            self.console.print(message, markup=False, highlight=False)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[Bar]:
        """Shows a bar with time left while the work inside goes on; bars may nest."""
        if self.console is None:
            yield Bar(None, None)
            return
        outermost = self._display is None
        if self._display is None:
            self._display = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=not self.console.is_terminal,
            )
            self._display.start()
        display = self._display
        task = display.add_task(title, total=total, note="")
        try:
            yield Bar(display, task)
        finally:
            display.remove_task(task)
            if outermost:
                display.stop()
                self._display = None


SILENT = Tracker()
