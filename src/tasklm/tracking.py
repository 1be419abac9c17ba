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

from tasklm.errors import RecipeError

WRITE_EVERY = 15.0  # seconds between lines of progress where no bar can be drawn


class Bar:
    """Progress of one piece of long work; cheap enough to move per item. This one shows nothing."""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Moves on by an amount; `note` stands behind the bar (rate, loss …)."""

    def at(self, position: float, note: str = "") -> None:
        """Moves to a position."""

    def total(self, amount: float) -> None:
        """Sets how much work there is in all."""


class DrawnBar(Bar):
    """A bar on a terminal."""

    def __init__(self, display: Progress, task: TaskID) -> None:
        self._display, self._task = display, task

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._display.advance(self._task, amount)
        if note:
            self._display.update(self._task, note=note)

    def at(self, position: float, note: str = "") -> None:
        self._display.update(self._task, completed=position, note=note)

    def total(self, amount: float) -> None:
        self._display.update(self._task, total=amount)


class WrittenBar(Bar):
    """A line now and then, where the output is a file or a pipe."""

    def __init__(self, console: Console, title: str, total: float | None) -> None:
        self._console, self._title, self._total = console, title, total
        self._done, self._started = 0.0, time.monotonic()
        self._first, self._written = 0.0, self._started

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.at(self._done + amount, note)

    def at(self, position: float, note: str = "") -> None:
        if not self._done:
            self._first = position  # work that an earlier process did says nothing about the rate
        self._done, now = position, time.monotonic()
        if now - self._written < WRITE_EVERY:
            return
        self._written = now
        line = f"{self._title}: {note}".rstrip(": ")
        if self._total and position > self._first:
            left = (self._total - position) * (now - self._started) / (position - self._first)
            line = f"{self._title}: {position / self._total:.0%}, about {left:.0f} s left  {note}"
        self._console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)

    def total(self, amount: float) -> None:
        self._total = amount


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


class TensorBoard:
    """Writes the numbers of training steps for TensorBoard; needs tasklm[track]."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RecipeError(["hardware.tensorboard = true needs TensorBoard: pip install 'tasklm[track]'"]) from None
        self._writer: Any = SummaryWriter(str(folder))

    def event(self, name: str, values: dict[str, Any]) -> None:
        if name != "step":
            return
        for kind, value in values.items():
            if isinstance(value, (int, float)) and kind != "step":
                self._writer.add_scalar(f"{values['stage']}/{kind}", value, values["step"])
        self._writer.flush()


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
            self.console.print(message, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[Bar]:
        """Shows a bar with time left while the work inside goes on; bars may nest."""
        if self.console is None:
            yield Bar()
            return
        if not self.console.is_terminal:
            yield WrittenBar(self.console, title, total)
            return
        outermost = self._display is None
        display = self._display = self._display or Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        if outermost:
            display.start()
        task = display.add_task(title, total=total, note="")
        try:
            yield DrawnBar(display, task)
        finally:
            display.remove_task(task)
            if outermost:
                display.stop()
                self._display = None


SILENT = Tracker()
