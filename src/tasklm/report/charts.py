"""Charts for a page: matplotlib draws them, the page colours them.

Words from the data go into the HTML beside them, never into a drawing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasklm.report.drawing import (
    FONT,
    WIDTH,
    bare_axes,
    drawing,
    figure_of,
    number_text,
    ruled_axes,
    svg,
)
from tasklm.report.inline_svg import SERIES, colour
from tasklm.report.page import Html, el, joined

if TYPE_CHECKING:  # matplotlib is imported only when drawing, so that --help is instant
    from matplotlib.axes import Axes

EDGE = 32  # margin of a grid of heads, for the numbers
MOST_POINTS = 200  # per line: more than the eye can tell apart
PICTURE_COLOUR = (70, 134, 214)  # visible on light and dark, because its strength is its opacity
KIND_LINES = {
    "positional": ("c2", "-"),
    "vertical": ("c1", (0, (3, 1.5))),
    "both": ("c4", (0, (1, 1))),
}

Point = tuple[float, float]
Group = tuple[int | None, Sequence[int]]


def line_chart(title: str, series: Mapping[str, Sequence[Point]], x_label: str = "step") -> Html:
    """A figure with one line per name, or nothing when no point is finite."""
    lines = {name: thinned(sorted(_finite(points))) for name, points in series.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Html("")
    all_x, all_y = zip(*chain.from_iterable(lines.values()), strict=True)
    hints, classes = {}, {}
    with drawing() as figure:
        axes = ruled_axes(figure, all_x, all_y, x_label)
        for number, (name, points) in enumerate(lines.items()):
            across, up = [x for x, _ in points], [y for _, y in points]
            ink = colour(f"c{number % SERIES}")
            mark = "hit" if len(points) > 40 else "dot"
            axes.plot(
                across,
                up,
                color=ink,
                linewidth=1.6,
                gid=f"line-{number}",
                clip_on=False,
                solid_joinstyle="round",
            )
            axes.plot(
                across,
                up,
                "o",
                color=ink,
                markersize=8,
                markeredgewidth=0,
                gid=f"hit-{number}",
                clip_on=False,
            )
            classes[f"line-{number}"] = f"s{number} line"
            classes[f"hit-{number}"] = f"s{number} {mark}"
            hints[f"hit-{number}"] = [
                f"{name}: {number_text(y)} at {x_label} {number_text(x)}" for x, y in points
            ]
        picture = svg(figure, title, hints, classes)
    entries = [(name, number_text(points[-1][1])) for name, points in lines.items()]
    return figure_of(title, picture, legend(entries))


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
    hints, classes = {}, {}
    with drawing() as figure:
        axes = ruled_axes(figure, [low, high], [0.0, float(counts.max())], x_label)
        for number, (count, left, right) in enumerate(zip(counts, edges, edges[1:], strict=False)):
            inset = 0.06 * (right - left)
            axes.bar(
                left + inset,
                count,
                right - left - 2 * inset,
                align="edge",
                color=colour("c0"),
                gid=f"bar-{number}",
                clip_on=False,
            )
            hints[f"bar-{number}"] = [f"{number_text(left)} to {number_text(right)}: {count:,}"]
            classes[f"bar-{number}"] = "bar"
        picture = svg(figure, title, hints, classes)
    return figure_of(title, picture)


def reliability(title: str, bins: Sequence[Mapping[str, Any]], about: str) -> Html:
    """A figure of accuracy against confidence; a dot is as large as its bin's share of examples."""
    filled = [one for one in bins if one["count"]]
    if not filled:
        return Html("")
    most = max(one["count"] for one in filled)
    hints, classes = {}, {}
    with drawing(WIDTH, 270) as figure:
        axes = ruled_axes(figure, [0.0, 1.0], [0.0, 1.0], "confidence")
        axes.plot([0, 1], [0, 1], color=colour("soft"), linewidth=1, linestyle=(0, (4, 3)))
        across, up = [one["confidence"] for one in filled], [one["accuracy"] for one in filled]
        axes.plot(across, up, color=colour("c0"), linewidth=1.6, gid="line", clip_on=False)
        classes["line"] = "line"
        for number, one in enumerate(filled):
            size = 5 + 12 * math.sqrt(one["count"] / most)
            gid = f"dot-{number}"
            axes.plot(
                [across[number]],
                [up[number]],
                "o",
                color=colour("c0"),
                markersize=size,
                markeredgewidth=0,
                gid=gid,
                clip_on=False,
            )
            sureness = f"confidence {one['confidence']:.3f}, accuracy {one['accuracy']:.3f}"
            hints[gid] = [f"{sureness}, {one['count']:,} examples"]
            classes[gid] = "bubble"
        picture = svg(figure, title, hints, classes)
    return figure_of(title, picture, el("p", about, class_="soft"))


def scatter(
    title: str, points: Sequence[Sequence[float]], groups: Sequence[Group], texts: Sequence[str]
) -> Html:
    """A scatter plot; a group is the number of its colour (None: the rest) and its points."""
    placed = np.asarray(points, dtype=float).reshape(-1, 2)
    low, high = placed.min(0), placed.max(0)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    hints, classes = {}, {}
    with drawing(WIDTH, 280) as figure:
        axes = bare_axes(figure, (0.01, 0.01, 0.98, 0.98))
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        for at, (number, members) in enumerate(groups):
            ink = colour("soft" if number is None else f"c{number % SERIES}")
            chosen = placed[list(members)]
            axes.plot(
                chosen[:, 0],
                chosen[:, 1],
                "o",
                color=ink,
                markersize=5.5,
                markeredgewidth=0,
                gid=f"group-{at}",
                clip_on=False,
            )
            hints[f"group-{at}"] = [texts[member] for member in members]
            classes[f"group-{at}"] = f"s{at} point"
        picture = svg(figure, title, hints, classes)
    return figure_of(title, picture)


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
    hint_of, classes = {}, {}
    with drawing(width, (width - EDGE) * len(layers) / len(columns) + EDGE) as figure:
        tall = figure.get_figheight() * 72
        bounds = ((EDGE - 2) / width, 2 / tall, (width - EDGE) / width, (tall - EDGE) / tall)
        axes = bare_axes(figure, bounds)
        for number, head in enumerate(heads):
            top = layers.index(int(head["layer"])) * cell
            left = columns.index(int(head["head"])) * cell
            rows, across = slice(top + gap, top + gap + side), slice(left + gap, left + gap + side)
            _paint(mosaic[rows, across], head["picture"])
            gid = f"head-{number}"
            frame = _Frame(left + gap / 2, top + gap / 2, side=cell - gap)
            frame.draw(axes, str(head["kind"]), gid)
            hint_of[gid], classes[gid] = [hints[number]], "head"
        axes.imshow(
            mosaic,
            interpolation="none",
            extent=(0, mosaic.shape[1], mosaic.shape[0], 0),
            aspect="auto",
            clip_on=False,
        )
        axes.set_xlim(0, mosaic.shape[1])
        axes.set_ylim(mosaic.shape[0], 0)
        small = {"fontsize": FONT, "color": colour("soft"), "parse_math": False}
        for at, layer in enumerate(layers):
            axes.text(-cell * 0.08, (at + 0.5) * cell, str(layer), ha="right", va="center", **small)  # type: ignore[arg-type]
        for at, column in enumerate(columns):
            axes.text(
                (at + 0.5) * cell,
                -cell * 0.08,
                str(column),
                ha="center",
                va="bottom",
                **small,  # type: ignore[arg-type]
            )
        picture = svg(figure, title, hint_of, classes)
    return figure_of(title, picture, class_="grid-of-heads")


def heat_map(title: str, shares: NDArray[np.float64]) -> Html:
    """A heat map of shares between 0 and 1, for matrices too large for a table."""
    image = np.zeros((*shares.shape, 4), np.uint8)
    _paint(image, shares)
    with drawing(WIDTH, WIDTH) as figure:
        axes = bare_axes(figure, (0, 0, 1, 1))
        axes.imshow(image, interpolation="none", aspect="auto", clip_on=False)
        picture = svg(figure, title, {}, {})
    return figure_of(title, picture)


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


@dataclass(frozen=True)
class _Frame:
    """The frame around the picture of a head."""

    left: float
    top: float
    side: float

    def draw(self, axes: Axes, kind: str, gid: str) -> None:
        """Draws the frame in the line of the head's kind."""
        from matplotlib.patches import Rectangle

        ink, line = KIND_LINES.get(kind, ("rule", "-"))
        rectangle = Rectangle(
            (self.left, self.top),
            self.side,
            self.side,
            fill=False,
            edgecolor=colour(ink),
            linewidth=2.0 if kind in KIND_LINES else 0.8,
            linestyle=line,
            gid=gid,
        )
        axes.add_patch(rectangle)


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
