"""One event stream → lines and progress on a terminal, events.jsonl, log.txt and other sinks.

Every part of tasklm reports through a `Tracker`: messages for the user, details for the log, named
events with plain values, and the progress of long work. Each sink decides what to do with them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from tasklm.console.progress import Bar
from tasklm.console.terminal import WRITE_EVERY, Screen, say
from tasklm.errors import RecipeError

RECORD_EVERY = 1.0  # seconds between records of progress, at least
NO_LOSSES = (
    "stage",
    "step",
    "rate",
    "dev",
    "tokens_per_second",
    "tflops",
    "of_ceiling",
    "memory_gb",
)  # of a training step


class Sink(Protocol):
    """Receives every event."""

    def event(self, name: str, values: dict[str, Any]) -> None: ...


class EventFile:
    """Appends events to a JSONL file, one line each, with the time in seconds since the epoch.

    Only the latest progress matters: it goes to progress.json beside that file, which therefore
    stays small.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.progress = path, path.with_name("progress.json")
        self._one_at_a_time = threading.Lock()

    def event(self, name: str, values: dict[str, Any]) -> None:
        if name == "progress":
            self._replace_progress(values)
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps(
                    {"event": name, "time": round(time.time(), 3), **values}, ensure_ascii=False
                )
                + "\n"
            )

    def _replace_progress(self, values: dict[str, Any]) -> None:
        temporary = self.progress.with_name(".progress.json.tmp")
        with self._one_at_a_time:  # several threads may move bars
            temporary.write_text(
                json.dumps({"time": round(time.time(), 3), **values}, ensure_ascii=False) + "\n",
                encoding="utf-8",
            )
            temporary.replace(self.progress)


class LogFile:
    """Appends events except progress to a readable text file: one line each, after the date and
    time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def event(self, name: str, values: dict[str, Any]) -> None:
        if name == "progress":
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {event_text(name, values)}\n")


def event_text(name: str, values: dict[str, Any]) -> str:
    """An event as a readable line."""
    if name == "message":
        return str(values["text"])
    if name == "step":
        return step_text(values)
    parts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())
    return f"{name}: {parts}" if parts else name


def step_text(values: dict[str, Any]) -> str:
    """A point of a learning curve as readable text: losses, dev score, rate, speed and memory."""
    parts = [f"{name} {value:.3f}" for name, value in values.items() if name not in NO_LOSSES]
    if "dev" in values:
        parts.append(f"dev {100 * values['dev']:.1f}")
    if "rate" in values:
        parts.append(f"learning rate {values['rate']:.1e}")
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second'] / 1000:.1f}k tokens/s")
    if "tflops" in values:
        parts.append(f"{values['tflops']:.2f} TFLOP/s")
    if "of_ceiling" in values:
        parts.append(f"{100 * values['of_ceiling']:.0f} % of this machine's peak")
    if "memory_gb" in values:
        parts.append(f"{values['memory_gb']:.1f} GB")
    return f"{values['stage']}, step {values['step']:,}: {', '.join(parts)}"


class TensorBoard:
    """Writes the numbers of training steps for TensorBoard; needs tasklm[track]."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RecipeError(
                ["hardware.tensorboard = true needs TensorBoard: pip install 'tasklm[track]'"]
            ) from None
        self._writer: Any = SummaryWriter(str(folder))

    def event(self, name: str, values: dict[str, Any]) -> None:
        if name != "step":
            return
        for kind, value in values.items():
            if isinstance(value, (int, float)) and kind != "step":
                self._writer.add_scalar(f"{values['stage']}/{kind}", value, values["step"])
        self._writer.flush()


class Tracker:
    """Sends events to sinks and, when `console` is given, messages and progress to a terminal.

    `verbose` also shows what is otherwise only recorded: details and points of curves.
    """

    def __init__(
        self, console: Console | None = None, sinks: list[Sink] | None = None, verbose: bool = False
    ) -> None:
        self.screen = None if console is None else Screen(console)
        self.sinks = sinks or []
        self.verbose = verbose
        self.title = ""  # of a nested run: its messages are hidden, its progress is shown
        self._bars: list[Bar] = []
        self._recorded = 0.0  # when progress was last recorded
        self._stepped = float("-inf")  # when a point of a learning curve was last shown

    def __repr__(self) -> str:
        return "Tracker()"  # as a default in the documentation

    def inside(self, title: str) -> Tracker:
        """A tracker for a run inside this one, with sinks of its own, on the same terminal."""
        inner = Tracker(verbose=self.verbose)
        inner.screen, inner.title = self.screen, title
        return inner

    def event(self, name: str, **values: Any) -> None:
        """Records one event in every sink."""
        for sink in self.sinks:
            sink.event(name, values)
        if name == "step" and self.verbose and time.monotonic() - self._stepped >= WRITE_EVERY:
            self._stepped = time.monotonic()
            self._show(step_text(values), style="dim")

    def say(self, message: str, label: str = "") -> None:
        """Shows a message at the terminal and records it."""
        self._record(message, label, "note")
        if self.verbose or not self.title:
            self._show(message, label)

    def warn(self, message: str) -> None:
        """Shows and records a warning: what is wrong and what to do about it."""
        self._record(message, "warning", "warning")
        self._show(message, "warning", "yellow")

    def detail(self, message: str) -> None:
        """Records a detail; shown only with `verbose`."""
        self._record(message, "", "detail")
        if self.verbose:
            self._show(message, style="dim")

    def _record(self, message: str, label: str, level: str) -> None:
        self.event("message", text=f"{label}: {message}" if label else message, level=level)

    def _show(self, message: str, label: str = "", style: str = "") -> None:
        if self.screen is not None:
            say(self.screen.console, message, label, style)

    @contextmanager
    def progress(self, title: str, total: float | None = None) -> Iterator[Bar]:
        """Shows and records the progress of the work inside, with the time left; bars may nest."""
        bar = Bar(title, total, [self] if self.sinks else [], self.title)
        with self._shown(bar):
            self._bars.append(bar)
            self._record_progress()
            self._recorded = float("-inf")  # so that the first move is recorded too
            try:
                yield bar
            finally:
                self._bars.remove(bar)
            # skipped if the work failed: the record then shows how far it got
            self._record_progress()

    def moved(self, bar: Bar) -> None:
        """Records the progress of all bars, at most every RECORD_EVERY seconds."""
        now = time.monotonic()
        if now - self._recorded >= RECORD_EVERY:
            self._recorded = now
            self._record_progress()

    def _record_progress(self) -> None:
        if self.sinks:
            self.event("progress", bars=[bar.values() for bar in self._bars])

    @contextmanager
    def _shown(self, bar: Bar) -> Iterator[None]:
        if self.screen is None:
            yield
            return
        with self.screen.showing(bar):
            yield


SILENT = Tracker()
