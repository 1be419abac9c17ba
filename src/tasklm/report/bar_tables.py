"""Bars and intervals drawn as HTML tables, which stay readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasklm.evaluate.scores import Spread, spread_text
from tasklm.report.page import Html, el, joined


def bars(
    rows: Sequence[tuple[Any, float, Any]],
    *,
    log: bool = False,
    strong: Sequence[int] = (),
    notes: Sequence[Any] = (),
) -> Html:
    """Horizontal bars (label, value, text after it) as a table; notes go into a last column."""
    positive = [value for _, value, _ in rows if value > 0]
    if not positive:
        return Html("")
    share = _shares(positive, log)
    lines = []
    for number, (label, value, text) in enumerate(rows):
        colour, class_ = ("c1", "ours") if number in strong else ("c0", None)
        bar = el("span", class_=f"hbar {colour}", style=f"width:{share(value):.1f}%")
        cells = [
            el("th", label, scope="row", dir="auto"),
            el("td", bar, class_="track"),
            el("td", text, class_="n"),
        ]
        if notes:
            cells.append(el("td", notes[number], class_="soft"))
        lines.append(el("tr", joined(cells), class_=class_))
    return el("table", el("tbody", joined(lines)), class_="bars noted" if notes else "bars")


def _shares(positive: Sequence[float], log: bool) -> Callable[[float], float]:
    """A function from a value to the length of its bar, in percent of the longest."""
    if not log:
        longest = max(positive)
        return lambda value: max(0.0, 100 * value / longest)
    low = math.log10(min(positive)) - 1
    span = math.log10(max(positive)) - low
    return lambda value: 100 * (math.log10(value) - low) / span if value > 0 else 0.0


@dataclass(frozen=True)
class Range:
    """A mean with its interval, if there is one, and its single values."""

    label: Any
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float]
    text: str

    @classmethod
    def of(cls, label: Any, spread: Spread) -> Range:
        """The range of a score over seeds."""
        return cls(label, spread.mean, spread.low, spread.high, spread.values, spread_text(spread))

    @property
    def ends(self) -> list[float]:
        """All values that must fit on the scale."""
        return [end for end in (self.mean, self.low, self.high, *self.values) if end is not None]


def ranges(rows: Sequence[Range], strong: Sequence[int] = ()) -> Html:
    """A table of means with their intervals drawn on one scale."""
    if not rows:
        return Html("")
    start = min(min(row.ends) for row in rows)
    span = (max(max(row.ends) for row in rows) - start) or 1.0

    def at(value: float) -> str:
        return f"{2 + 96 * (value - start) / span:.1f}%"

    lines = []
    for number, row in enumerate(rows):
        cells = [
            el("th", row.label, scope="row"),
            el("td", _range_marks(row, at), class_="track", title=row.text),
            el("td", row.text, class_="n"),
        ]
        lines.append(el("tr", joined(cells), class_="ours" if number in strong else None))
    return el("table", el("tbody", joined(lines)), class_="bars ranges")


def _range_marks(row: Range, at: Callable[[float], str]) -> Html:
    """The interval, the single values if there are several, and the mean on top."""
    marks = []
    if row.low is not None and row.high is not None:
        style = f"left:{at(row.low)};right:calc(100% - {at(row.high)})"
        marks.append(el("span", class_="span", style=style))
    if len(row.values) > 1:
        marks += [el("span", class_="seed", style=f"left:{at(value)}") for value in row.values]
    marks.append(el("span", class_="mean", style=f"left:{at(row.mean)}"))
    return el("div", joined(marks), class_="range")
