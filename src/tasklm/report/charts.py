"""Charts for a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasklm.report.drawing import (
    LOWER,
    SERIES,
    THICK,
    THIN,
    WIDTH,
    Drawing,
    Plane,
    colour,
    figure_of,
    number_text,
)
from tasklm.report.page import Html, el, joined

EDGE = 32  # margin of a grid of heads, for the numbers
MOST_POINTS = 200  # per line: more than the eye can tell apart
PICTURE_COLOUR = (70, 134, 214)  # visible on light and dark, because its strength is its opacity
# colour and dashes of the frames of heads
KIND_LINES = {"positional": ("c2", ""), "vertical": ("c1", "6,3"), "both": ("c4", "2,2")}
_IN_A_ROW = 2.73  # from the middle of a row of heads to the line that its number stands on

Point = tuple[float, float]
Group = tuple[int | None, Sequence[int]]


def line_chart(title: str, series: Mapping[str, Sequence[Point]], x_label: str = "step") -> Html:
    """A figure with one line per name, or nothing when no point is finite."""
    lines = {name: thinned(sorted(_finite(points))) for name, points in series.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Html("")
    all_x, all_y = zip(*chain.from_iterable(lines.values()), strict=True)
    drawing = Drawing()
    plane = drawing.ruled(all_x, all_y, x_label)
    for number, (name, points) in enumerate(lines.items()):
        places, ink = plane.places(*zip(*points, strict=True)), f"c{number % SERIES}"
        mark = "hit" if len(points) > 40 else "dot"
        hints = [f"{name}: {number_text(y)} at {x_label} {number_text(x)}" for x, y in points]
        drawing.line(places, ink, THICK, f"s{number} line")
        drawing.dots(places, 4, ink, f"s{number} {mark}", hints)
    entries = [(name, number_text(points[-1][1])) for name, points in lines.items()]
    return figure_of(title, drawing.svg(title), legend(entries))


def histogram(title: str, values: ArrayLike, x_label: str, bins: int = 24) -> Html:
    """A figure of how often values occur, or nothing when there are none."""
    given = np.asarray(values)
    finite = given[np.isfinite(given)]
    if not len(finite):
        return Html("")
    low, high = float(finite.min()), float(finite.max())
    if bool(np.all(finite == np.floor(finite))) and high - low < bins:
        low, high, bins = low - 0.5, high + 0.5, int(high - low) + 1  # whole numbers: one bar each
    elif low == high:
        low, high, bins = low - 0.5, high + 0.5, 1
    counts, edges = np.histogram(finite, bins=bins, range=(low, high))
    drawing = Drawing()
    plane = drawing.ruled([low, high], [0.0, float(counts.max())], x_label)
    for count, left, right in zip(counts.tolist(), edges, edges[1:], strict=False):
        inset = 0.06 * (right - left)
        corners = plane.places(
            (left + inset, right - inset, right - inset, left + inset), (0, 0, count, count)
        )
        hint = f"{number_text(left)} to {number_text(right)}: {count:,}"
        drawing.area(corners, f"fill: {colour('c0')}", "bar", hint)
    return figure_of(title, drawing.svg(title))


def reliability(title: str, bins: Sequence[Mapping[str, Any]], about: str) -> Html:
    """A figure of accuracy against confidence; a dot is as large as its bin's share of examples."""
    filled = [one for one in bins if one["count"]]
    if not filled:
        return Html("")
    most = max(one["count"] for one in filled)
    drawing = Drawing(WIDTH, 270)
    plane = drawing.ruled([0.0, 1.0], [0.0, 1.0], "confidence")
    drawing.dashes(plane.places((0, 1), (0, 1)), "soft")
    places = [(plane.x(one["confidence"]), plane.y(one["accuracy"])) for one in filled]
    drawing.line(places, "c0", THICK, "line")
    for place, one in zip(places, filled, strict=True):
        radius = (5 + 12 * math.sqrt(one["count"] / most)) / 2
        sureness = f"confidence {one['confidence']:.3f}, accuracy {one['accuracy']:.3f}"
        hint = f"{sureness}, {one['count']:,} examples"
        drawing.dots([place], radius, "c0", "bubble", [hint])
    return figure_of(title, drawing.svg(title), el("p", about, class_="soft"))


def scatter(
    title: str, points: Sequence[Sequence[float]], groups: Sequence[Group], texts: Sequence[str]
) -> Html:
    """A scatter plot; a group is the number of its colour (None: the rest) and its points."""
    placed = np.asarray(points, dtype=float).reshape(-1, 2)
    low, high = placed.min(0), placed.max(0)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    limits = (left, right), (bottom, top)
    drawing = Drawing(WIDTH, 280)
    x, y = 0.99 * WIDTH, 0.99 * drawing.height
    plane = Plane(WIDTH - x, drawing.height - y, x, y, *limits)
    for at, (number, members) in enumerate(groups):
        chosen = placed[list(members)]
        places = plane.places(chosen[:, 0].tolist(), chosen[:, 1].tolist())
        ink = "soft" if number is None else f"c{number % SERIES}"
        drawing.dots(places, 2.75, ink, f"s{at} point", [texts[member] for member in members])
    return figure_of(title, drawing.svg(title))


def head_grid(
    title: str, heads: Sequence[Mapping[str, Any]], side: int, hints: Sequence[str]
) -> Html:
    """A small picture of every attention head, layers downwards, framed by the head's kind."""
    layers = sorted({int(head["layer"]) for head in heads})
    columns = sorted({int(head["head"]) for head in heads})
    gap = max(1, side // 8)
    cell = side + 2 * gap
    mosaic = np.zeros((len(layers) * cell, len(columns) * cell, 4), np.uint8)
    width = min(520, EDGE + 90 * len(columns))
    drawing = Drawing(width, (width - EDGE) * len(layers) / len(columns) + EDGE)
    unit, edge = (width - EDGE) / mosaic.shape[1], EDGE - 2
    frames = []
    for head in heads:
        top = layers.index(int(head["layer"])) * cell
        left = columns.index(int(head["head"])) * cell
        rows, across = slice(top + gap, top + gap + side), slice(left + gap, left + gap + side)
        _paint(mosaic[rows, across], head["picture"])
        near, far = gap / 2, cell - gap / 2
        corners = ((near, near), (far, near), (far, far), (near, far), (near, near))
        frames.append([(edge + unit * (left + x), edge + unit * (top + y)) for x, y in corners])
    drawing.image(mosaic, edge, edge, unit)
    for frame, head, hint in zip(frames, heads, hints, strict=True):
        drawing.area(frame, _framed(str(head["kind"])), "head", hint)
    beside = edge - unit * cell * 0.08
    for at, layer in enumerate(layers):
        drawing.text(beside, edge + unit * (at + 0.5) * cell + _IN_A_ROW, str(layer), "end")
    for at, column in enumerate(columns):
        drawing.text(edge + unit * (at + 0.5) * cell, beside + LOWER, str(column))
    return figure_of(title, drawing.svg(title), class_="grid-of-heads")


def _framed(kind: str) -> str:
    """The style of the frame around a head of this kind."""
    ink, dashes = KIND_LINES.get(kind, ("rule", ""))
    thick = 2 if kind in KIND_LINES else THIN
    broken = f"stroke-dasharray: {dashes}; " if dashes else ""
    return (
        f"fill: none; {broken}stroke: {colour(ink)}; stroke-width: {thick}; stroke-linejoin: miter"
    )


def heat_map(title: str, shares: NDArray[np.float64]) -> Html:
    """A heat map of shares between 0 and 1, for matrices too large for a table."""
    image = np.zeros((*shares.shape, 4), np.uint8)
    _paint(image, shares)
    drawing = Drawing(WIDTH, WIDTH)
    drawing.image(image, 0, 0, WIDTH / image.shape[1])
    return figure_of(title, drawing.svg(title))


def legend(entries: Sequence[tuple[Any, Any]], grey: Sequence[int] = ()) -> Html:
    """A legend: names with a text after each; those in `grey` are muted."""
    lines = []
    for number, (name, text) in enumerate(entries):
        colour_name = "rest" if number in grey else f"c{number % SERIES}"
        chip = el("span", class_=f"chip {colour_name}")
        lines.append(el("li", chip, el("bdi", name), el("b", text), data_series=number))
    return el("ul", joined(lines), class_="legend")


def thinned(points: list[Point]) -> list[Point]:
    """At most about MOST_POINTS of the points, including the first and the last."""
    if len(points) <= MOST_POINTS:
        return points
    return [
        points[round(number * (len(points) - 1) / (MOST_POINTS - 1))]
        for number in range(MOST_POINTS)
    ]


def _paint(square: NDArray[np.uint8], weights: Any) -> None:
    """Colours pixels by the square roots of weights between 0 and 1, so that small ones are
    visible.
    """
    opacity = np.sqrt(np.clip(np.nan_to_num(np.asarray(weights, dtype=float)), 0.0, 1.0))
    tall, wide = np.minimum(square.shape[:2], opacity.shape)
    square[:tall, :wide, :3] = PICTURE_COLOUR
    square[:tall, :wide, 3] = np.round(255 * opacity[:tall, :wide])


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
