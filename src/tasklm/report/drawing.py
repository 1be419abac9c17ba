"""The canvas of the charts: it writes SVG for a page, in the page's colours, with hints on marks.

Nothing in a drawing refers to anything by id, so that any number of them can stand in one page. All
text goes through `el`, which escapes it.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.report.page import Html, clipped, el, joined

WIDTH, HEIGHT = 300, 176  # units of a drawing; its letters are 10.5 high (page.css)
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34
SERIES = 10  # colours c0 … c9 of the page's style
THICK, THIN = 1.6, 0.8  # lines of the data, and those behind them
# from the middle and from the lower edge of figures to the line that they stand on
MIDDLE, LOWER = 3.99, -2.52
_PAD = 5  # between an axis and its numbers
_NUMBERS, _NAME = 12.98, 26.48  # where numbers and name of the x axis stand below it
_COLOURS = {
    name: f"var(--{name})"
    for name in ("ink", "soft", "rule", *(f"c{number}" for number in range(SERIES)))
}

Place = tuple[float, float]


def colour(name: str) -> str:
    """The page's colour of this name, light or dark."""
    return _COLOURS[name]


@dataclass(frozen=True)
class Plane:
    """A rectangle of a drawing, and the numbers that its sides stand for."""

    left: float
    top: float
    right: float
    bottom: float
    across: tuple[float, float]  # at the left and at the right
    up: tuple[float, float]  # at the bottom and at the top

    def x(self, value: float) -> float:
        """Where a number is from left to right."""
        return self.left + (self.right - self.left) * _share(value, *self.across)

    def y(self, value: float) -> float:
        """Where a number is from the top down."""
        return self.bottom - (self.bottom - self.top) * _share(value, *self.up)

    def places(self, across: Iterable[float], up: Iterable[float]) -> list[Place]:
        """Where points are."""
        return [(self.x(x), self.y(y)) for x, y in zip(across, up, strict=True)]


def _share(value: float, low: float, high: float) -> float:
    """How far a number is on the way from the one to the other; half way where they are one."""
    return (value - low) / (high - low) if high != low else 0.5


class Drawing:
    """What is drawn, first what lies behind."""

    def __init__(self, width: float = WIDTH, height: float = HEIGHT) -> None:
        self.width, self.height = width, height
        self._parts: list[Html] = []

    def svg(self, title: str) -> Html:
        """The drawing as an element of a page."""
        box = f"0 0 {_short(self.width)} {_short(self.height)}"
        return el("svg", joined(self._parts), viewBox=box, role="img", aria_label=title)

    def line(
        self, places: Sequence[Place], ink: str, thick: float = 1.0, class_: str | None = None
    ) -> None:
        """A line through places; of a class, it is in a group of its own."""
        style = (
            f"fill: none; stroke: {colour(ink)}; stroke-width: {thick:g}; stroke-linecap: square"
        )
        drawn = _path(places)
        if class_ is None:
            self._parts.append(el("path", d=drawn, style=style))
        else:
            self._parts.append(el("g", el("path", d=drawn), class_=class_, style=style))

    def dashes(self, places: Sequence[Place], ink: str) -> None:
        """A broken line."""
        style = f"fill: none; stroke-dasharray: 4,3; stroke: {colour(ink)}"
        self._parts.append(el("path", d=_path(places), style=style))

    def dots(
        self, places: Sequence[Place], radius: float, ink: str, class_: str, hints: Sequence[str]
    ) -> None:
        """Round marks, each with its hint."""
        size = _short(radius)
        marks = [
            el("circle", el("title", hint), cx=_short(x), cy=_short(y), r=size)
            for (x, y), hint in zip(places, hints, strict=True)
        ]
        self._parts.append(el("g", joined(marks), class_=class_, style=f"fill: {colour(ink)}"))

    def area(self, corners: Sequence[Place], style: str, class_: str, hint: str) -> None:
        """A closed shape with its hint."""
        shape = el("path", el("title", hint), d=f"{_path(corners)} z")
        self._parts.append(el("g", shape, class_=class_, style=style))

    def text(self, x: float, y: float, words: str, anchor: str = "middle") -> None:
        """Quiet words that stand on a place: before it (end) or around it (middle)."""
        style = f"text-anchor: {anchor}; fill: {colour('soft')}"
        self._parts.append(el("text", words, x=_short(x), y=_short(y), style=style))

    def image(self, pixels: NDArray[np.uint8], left: float, top: float, unit: float) -> None:
        """A picture of red, green, blue and opacity, with pixels of so many units."""
        from PIL import Image  # imported only when drawing, so that --help is instant

        written = io.BytesIO()
        Image.fromarray(pixels).save(written, format="png")
        source = base64.b64encode(written.getvalue()).decode("ascii")
        rows, columns = pixels.shape[:2]
        size: dict[str, Any] = {
            "width": columns,
            "height": rows,
            "transform": f"matrix({unit:g} 0 0 {unit:g} {_short(left)} {_short(top)})",
        }
        href = f"data:image/png;base64,{source}"
        self._parts.append(el("image", href=href, class_="pixels", **size))

    def ruled(self, across: Sequence[float], up: Sequence[float], x_label: str) -> Plane:
        """Axes with round ticks on both sides and lines across at those of y."""
        low, high = min(across), max(across)
        y_ticks = ticks(up)
        if min(up) >= 0:  # values that are never negative need no axis below 0
            y_ticks = [y for y in y_ticks if y >= 0]
        margin = 0.0 if high > low else 0.5
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        sides = (low - margin, high + margin), (y_ticks[0], y_ticks[-1])
        plane = Plane(LEFT, TOP, right, bottom, *sides)
        for x in ticks(across):
            if low <= x <= high:
                self.text(plane.x(x), bottom + _NUMBERS, number_text(x))
        self.text((LEFT + right) / 2, bottom + _NAME, x_label)
        for y in y_ticks:
            at = plane.y(y)
            self.line([(LEFT, at), (right, at)], "rule", THIN)
            self.text(LEFT - _PAD, at + MIDDLE, number_text(y), "end")
        return plane


def _path(places: Sequence[Place]) -> str:
    return "M " + " L ".join(f"{_short(x)} {_short(y)}" for x, y in places)


def _short(number: float) -> str:
    """A number of a drawing, to a hundredth of a unit."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def figure_of(
    title: str, drawing: Html, below: Html | None = None, class_: str | None = None
) -> Html:
    """A drawing with its title and caption."""
    return el("figure", el("figcaption", clipped(title, 200)), drawing, below or "", class_=class_)


def ticks(values: Sequence[float], about: int = 5) -> list[float]:
    """Round numbers that span the values."""
    low, high = min(values), max(values)
    if low == high:
        margin = max(1.0, abs(low)) / 2
        low, high = low - margin, high + margin
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """A number short enough for an axis."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1000:.4g}k"
    if 1e6 <= abs(value) < 1e9:
        return f"{value / 1e6:.4g}M"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
