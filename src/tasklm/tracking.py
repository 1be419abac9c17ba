"""One event stream → progress bars, events.jsonl and other sinks.

Every part of tasklm reports through a `Tracker`: named events with plain values, and progress of long work with
its rate and time left. What a sink does with them is the sink's business.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tasklm.errors import RecipeError

WRITE_EVERY = 15.0  # seconds between lines of progress where no bar can be drawn
RECORD_EVERY = 1.0  # seconds between records of progress, at least
AVERAGED_OVER = 60.0  # seconds of work whose rate is recorded: it was slower while things were compiled or read for the first time


class Bar:
    """Progress of one piece of long work; cheap enough to move per item. This one shows nothing."""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Moves on by an amount; `note` stands behind the bar (rate, loss …), an empty one leaves the last."""

    def at(self, position: float, note: str = "") -> None:
        """Moves to a position; the same goes for `note`."""

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
        self._display.update(self._task, completed=position)
        if note:
            self._display.update(self._task, note=note)

    def total(self, amount: float) -> None:
        self._display.update(self._task, total=amount)


class WrittenBar(Bar):
    """A line now and then, where the output is a file or a pipe."""

    def __init__(self, console: Console, title: str, total: float | None) -> None:
        self._console, self._title, self._total = console, title, total
        self._done, self._started = 0.0, time.monotonic()
        self._first, self._written, self._note = 0.0, self._started, ""

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.at(self._done + amount, note)

    def at(self, position: float, note: str = "") -> None:
        now = time.monotonic()
        if not self._done:
            self._first, self._started = position, now  # what an earlier process did, and the first step, say nothing about the rate
        self._done, self._note = position, note or self._note
        if now - self._written < WRITE_EVERY:
            return
        self._written = now
        line = f"{self._title}: {self._note}".rstrip(": ")
        if self._total and position > self._first:
            left = (self._total - position) * (now - self._started) / (position - self._first)
            line = f"{self._title}: {position / self._total:.0%}, about {left:.0f} s left  {self._note}"
        self._console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)

    def total(self, amount: float) -> None:
        self._total = amount


class RecordedBar(Bar):
    """Moves another bar and tells, at most every RECORD_EVERY seconds, that there is something new to record."""

    def __init__(self, shown: Bar, title: str, total: float | None, record: Callable[[], None]) -> None:
        self._shown, self._title, self._total, self._record = shown, title, total, record
        self._done, self._note = 0.0, ""
        self._rate: float | None = None
        self._recorded: tuple[float, float] | None = None  # when, and the position then

    def advance(self, amount: float = 1, note: str = "") -> None:
        self._shown.advance(amount, note)
        self._move(self._done + amount, note)

    def at(self, position: float, note: str = "") -> None:
        self._shown.at(position, note)
        self._move(position, note)

    def total(self, amount: float) -> None:
        self._shown.total(amount)
        self._total = amount

    def values(self) -> dict[str, Any]:
        """Returns title, position, total, rate per second (None until it is known) and note."""
        total = None if self._total is None else float(self._total)
        return {"title": self._title, "done": float(self._done), "total": total, "rate": self._rate, "note": self._note}

    def _move(self, position: float, note: str) -> None:
        self._done, self._note, now = position, note or self._note, time.monotonic()
        if self._recorded is not None:
            when, where = self._recorded
            if now - when < RECORD_EVERY:
                return
            rate, weight = (position - where) / (now - when), math.exp((when - now) / AVERAGED_OVER)
            self._rate = rate if self._rate is None else weight * self._rate + (1 - weight) * rate
        self._recorded = now, position  # the first position may be what an earlier process did: it says nothing about the rate
        self._record()


class Sink(Protocol):
    """Receives every event."""

    def event(self, name: str, values: dict[str, Any]) -> None: ...


class EventFile:
    """Appends events to a JSONL file, one line each, with the time in seconds since the epoch.

    Of progress only the latest is of use: it stands in progress.json beside that file, which therefore stays small.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.progress = path, path.with_name("progress.json")
        self._one_at_a_time = threading.Lock()

    def event(self, name: str, values: dict[str, Any]) -> None:
        if name == "progress":
            self._replace_progress(values)
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": name, "time": round(time.time(), 3), **values}, ensure_ascii=False) + "\n")

    def _replace_progress(self, values: dict[str, Any]) -> None:
        temporary = self.progress.with_name(".progress.json.tmp")
        with self._one_at_a_time:  # bars may be moved by several threads
            temporary.write_text(json.dumps({"time": round(time.time(), 3), **values}, ensure_ascii=False) + "\n", encoding="utf-8")
            temporary.replace(self.progress)


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
        self._recorded: list[RecordedBar] = []

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
        """Shows a bar with time left while the work inside goes on, and records it in every sink; bars may nest."""
        with self._shown(title, total) as shown:
            if not self.sinks:
                yield shown
                return
            bar = RecordedBar(shown, title, total, self._record_progress)
            self._recorded.append(bar)
            self._record_progress()
            try:
                yield bar
            finally:
                self._recorded.remove(bar)
            self._record_progress()  # not where the work failed: what stays on record is how far it came

    def _record_progress(self) -> None:
        self.event("progress", bars=[bar.values() for bar in self._recorded])

    @contextmanager
    def _shown(self, title: str, total: float | None) -> Iterator[Bar]:
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
