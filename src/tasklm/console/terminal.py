"""What a person at a terminal sees: short labelled lines, and one line of progress.

On a terminal, lines wrap between words. In a file or a pipe a message is one line of any length,
and progress is an occasional line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tasklm.console.durations import duration
from tasklm.console.progress import Bar

LABEL, LONGEST_LABEL = 8, 24  # width of the labels at the start of lines; of longer ones, at most
LONGEST_BAR, SHORTEST_BAR = 30, 8  # columns
WRITE_EVERY = 30.0  # seconds between lines of progress where no bar can be drawn
REDRAW = 4  # times a second


def say(console: Console, text: str, label: str = "", style: str = "") -> None:
    """Prints a message in a style; a label comes before it and has the style instead."""
    if not console.is_terminal:
        line = f"{label}: {text}" if label else text
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    elif label:
        console.print(labelled(text, label, style or "cyan"))
    else:
        console.print(Text(text, style=style))


def labelled(text: str, label: str, style: str) -> Table:
    """A message beside its label; further lines are aligned with the first."""
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=min(LONGEST_LABEL, max(LABEL, cell_len(label))), no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(Text(label, style=f"bold {style}"), Text(text))
    return line


def say_command(console: Console, command: str, label: str) -> None:
    """Prints a command or a path after its label, never wrapped, so that it can be copied."""
    before = (f"{label:{LABEL}}  ", "bold green") if console.is_terminal else f"{label}: "
    console.print(Text.assemble(before, command), soft_wrap=True)


def progress_text(bar: Bar) -> str:
    """Progress of a piece of work: title, share, time left, and the one number that matters."""
    share = ""
    if bar.share is not None:
        share = f"{bar.share:.0%}"
    state = ", ".join(part for part in (share, left_text(bar), bar.note) if part)
    if not state:
        return bar.name
    return f"{bar.name}: {state}"


def left_text(bar: Bar) -> str:
    """The time left in words; nothing until it is known."""
    if bar.left is None:
        return ""
    return f"about {duration(bar.left, rough=True)} left"


class ProgressLine:
    """The innermost piece of work as one line, as wide as the terminal."""

    def __init__(self, bars: list[Bar]) -> None:
        self.bars = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.bars:
            return
        bar, width = self.bars[-1], options.max_width
        if bar.share is None:
            done = duration(whole_seconds(bar))
        else:
            done = f"{bar.share:4.0%}"
        state = [part for part in (done, left_text(bar), bar.note) if part]
        while state and _width([bar.name, *state]) > width:
            state.pop()
        room = width - _width([bar.name, *state]) - 2
        parts: list[Text | ProgressBar] = [
            Text(bar.name, style="bold", overflow="ellipsis", no_wrap=True)
        ]
        if room >= SHORTEST_BAR and bar.total is not None:
            parts.append(ProgressBar(bar.total, bar.position, width=min(LONGEST_BAR, room)))
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(*parts, *(Text(part, no_wrap=True) for part in state))
        yield line


def whole_seconds(bar: Bar) -> int:
    """How long a piece of work has been running."""
    return int(time.monotonic() - bar.started)


def _width(parts: list[str]) -> int:
    return sum(cell_len(part) for part in parts) + 2 * (len(parts) - 1)


class WrittenLines:
    """Progress where no bar can be drawn: an occasional line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._written = time.monotonic()

    def moved(self, bar: Bar) -> None:
        """Writes a line if the last one is old enough."""
        now = time.monotonic()
        if now - self._written >= WRITE_EVERY:
            self._written = now
            say(self.console, progress_text(bar))


class Screen:
    """A terminal with at most one line of progress; messages go above it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: list[Bar] = []  # the innermost last
        self._written = WrittenLines(console)

    @contextmanager
    def showing(self, bar: Bar) -> Iterator[None]:
        """Shows a piece of work while it runs; of nested ones, the innermost."""
        if not self.console.is_interactive:
            bar.views = [*bar.views, self._written]
            yield
            return
        self._bars.append(bar)
        try:
            if len(self._bars) > 1:
                yield
                return
            line = ProgressLine(self._bars)
            with Live(line, console=self.console, refresh_per_second=REDRAW, transient=True):
                yield
        finally:
            self._bars.remove(bar)
