"""Charts for a page: matplotlib draws them, the page colours them.

Words of the data stand in HTML beside them, never in a drawing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasklm.report.inline_svg import SERIES, colour, inline
from tasklm.report.page import Html, clipped, el

if TYPE_CHECKING:  # matplotlib is imported when something is drawn: help must come at once
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 300, 176  # units of a drawing; its letters are FONT units high
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34
FONT = 10.5
EDGE = 32  # beside and above a grid of heads, for the numbers
MOST_POINTS = 200  # per line: more than the eye can tell apart
PICTURE_COLOUR = (70, 134, 214)  # seen on light and on dark, since its strength is its opacity
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
    every = [point for points in lines.values() for point in points]
    hints, classes = {}, {}
    with _drawing() as figure:
        axes = _axes(figure, [x for x, _ in every], [y for _, y in every], x_label)
        for number, (name, points) in enumerate(lines.items()):
            across, up = [x for x, _ in points], [y for _, y in points]
            ink = colour(f"c{number % SERIES}")
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
            classes[f"hit-{number}"] = f"s{number} " + ("hit" if len(points) > 40 else "dot")
            hints[f"hit-{number}"] = [
                f"{name}: {number_text(y)} at {x_label} {number_text(x)}" for x, y in points
            ]
        picture = _svg(figure, title, hints, classes)
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
        low, high, bins = low - 0.5, high + 0.5, int(high - low) + 1  # whole numbers: a bar each
    elif low == high:
        low, high, bins = low - 0.5, high + 0.5, 1
    counts, edges = np.histogram(finite, bins=bins, range=(low, high))
    hints, classes = {}, {}
    with _drawing() as figure:
        axes = _axes(figure, [low, high], [0.0, float(counts.max())], x_label)
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
        picture = _svg(figure, title, hints, classes)
    return figure_of(title, picture)


def reliability(title: str, bins: Sequence[Mapping[str, Any]], about: str) -> Html:
    """A figure of accuracy against confidence: a dot per bin, as large as its share of the
    examples, beside the diagonal.
    """
    filled = [one for one in bins if one["count"]]
    if not filled:
        return Html("")
    most = max(one["count"] for one in filled)
    hints, classes = {}, {}
    with _drawing(WIDTH, 270) as figure:
        axes = _axes(figure, [0.0, 1.0], [0.0, 1.0], "confidence")
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
            hints[gid] = [
                (
                    f"confidence {one['confidence']:.3f}, "
                    f"accuracy {one['accuracy']:.3f}, {one['count']:,} examples"
                )
            ]
            classes[gid] = "bubble"
        picture = _svg(figure, title, hints, classes)
    return figure_of(title, picture, el("p", about, class_="soft"))


def scatter(
    title: str, points: Sequence[Sequence[float]], groups: Sequence[Group], texts: Sequence[str]
) -> Html:
    """A figure of points; a group is the number of its colour (None: one of the rest) and its
    points' numbers.
    """
    placed = np.asarray(points, dtype=float).reshape(-1, 2)
    low, high = placed.min(0), placed.max(0)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    hints, classes = {}, {}
    with _drawing(WIDTH, 280) as figure:
        axes = _bare_axes(figure, (0.01, 0.01, 0.98, 0.98))
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
        picture = _svg(figure, title, hints, classes)
    return figure_of(title, picture)


def head_grid(
    title: str, heads: Sequence[Mapping[str, Any]], side: int, hints: Sequence[str]
) -> Html:
    """A figure with a small picture of every attention head, layers downwards, framed by the head's
    kind.
    """
    layers, columns = (sorted({int(head[name]) for head in heads}) for name in ("layer", "head"))
    gap = max(1, side // 8)
    cell = side + 2 * gap
    mosaic = np.zeros((len(layers) * cell, len(columns) * cell, 4), np.uint8)
    width = min(520, EDGE + 90 * len(columns))
    given, classes = {}, {}
    with _drawing(width, (width - EDGE) * len(layers) / len(columns) + EDGE) as figure:
        tall = figure.get_figheight() * 72
        axes = _bare_axes(
            figure, ((EDGE - 2) / width, 2 / tall, (width - EDGE) / width, (tall - EDGE) / tall)
        )
        for number, head in enumerate(heads):
            top = layers.index(int(head["layer"])) * cell
            left = columns.index(int(head["head"])) * cell
            _paint(
                mosaic[top + gap : top + gap + side, left + gap : left + gap + side],
                head["picture"],
            )
            _frame(axes, left, top, cell, gap, str(head["kind"]), f"head-{number}")
            given[f"head-{number}"], classes[f"head-{number}"] = [hints[number]], "head"
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
        picture = _svg(figure, title, given, classes)
    return figure_of(title, picture, class_="grid-of-heads")


def heat_map(title: str, shares: NDArray[np.float64]) -> Html:
    """A figure of a square of shares between 0 and 1, for squares too large for a table."""
    image = np.zeros((*shares.shape, 4), np.uint8)
    _paint(image, shares)
    with _drawing(WIDTH, WIDTH) as figure:
        axes = _bare_axes(figure, (0, 0, 1, 1))
        axes.imshow(image, interpolation="none", aspect="auto", clip_on=False)
        picture = _svg(figure, title, {}, {})
    return figure_of(title, picture)


def bars(
    rows: Sequence[tuple[Any, float, Any]],
    *,
    log: bool = False,
    strong: Sequence[int] = (),
    notes: Sequence[Any] = (),
) -> Html:
    """Returns horizontal bars (label, value, text behind it) as a table, which stays readable on a
    phone; notes stand in a last column.
    """
    positive = [value for _, value, _ in rows if value > 0]
    if not positive:
        return Html("")
    low = math.log10(min(positive)) - 1 if log else 0.0
    span = (math.log10(max(positive)) if log else max(positive)) - low
    made = []
    for number, (label, value, text) in enumerate(rows):
        share = 0.0 if value <= 0 else 100 * ((math.log10(value) if log else value) - low) / span
        bar = el(
            "span", class_=f"hbar {'c1' if number in strong else 'c0'}", style=f"width:{share:.1f}%"
        )
        cells = [
            el("th", label, scope="row", dir="auto"),
            el("td", bar, class_="track"),
            el("td", text, class_="n"),
        ]
        cells += [el("td", notes[number], class_="soft")] if notes else []
        made.append(el("tr", *cells, class_="ours" if number in strong else None))
    return el("table", el("tbody", *made), class_="bars noted" if notes else "bars")


def ranges(
    rows: Sequence[tuple[Any, float, float | None, float | None, Sequence[float], str]],
    strong: Sequence[int] = (),
) -> Html:
    """A table of means (label, mean, low, high, single values, text) with their intervals drawn on
    one scale.
    """
    if not rows:
        return Html("")
    ends = [
        end
        for _, mean, low, high, single, _ in rows
        for end in (mean, low, high, *single)
        if end is not None
    ]
    start, span = min(ends), (max(ends) - min(ends)) or 1.0

    def at(value: float) -> str:
        return f"{2 + 96 * (value - start) / span:.1f}%"

    made = []
    for number, (label, mean, low, high, single, text) in enumerate(rows):
        marks = (
            [el("span", class_="seed", style=f"left:{at(value)}") for value in single]
            if len(single) > 1
            else []
        )
        if low is not None and high is not None:
            marks.insert(
                0, el("span", class_="span", style=f"left:{at(low)};right:calc(100% - {at(high)})")
            )
        marks.append(el("span", class_="mean", style=f"left:{at(mean)}"))
        drawn = el("div", *marks, class_="range")
        cells = [
            el("th", label, scope="row"),
            el("td", drawn, class_="track", title=text),
            el("td", text, class_="n"),
        ]
        made.append(el("tr", *cells, class_="ours" if number in strong else None))
    return el("table", el("tbody", *made), class_="bars ranges")


def legend(entries: Sequence[tuple[Any, Any]], grey: Sequence[int] = ()) -> Html:
    """What the colours of a figure stand for: names with a text behind them; those in `grey` are
    drawn in the quiet colour.
    """
    return el(
        "ul",
        *(
            el(
                "li",
                el("span", class_="chip " + ("rest" if number in grey else f"c{number % SERIES}")),
                el("bdi", name),
                el("b", text),
                data_series=number,
            )
            for number, (name, text) in enumerate(entries)
        ),
        class_="legend",
    )


def figure_of(
    title: str, drawing: Html, below: Html | None = None, class_: str | None = None
) -> Html:
    """A drawing with its title and what stands below it."""
    return el(
        "figure",
        el("figcaption", clipped(title, 200)),
        drawing,
        below if below is not None else "",
        class_=class_,
    )


def ticks(values: Sequence[float], about: int = 5) -> list[float]:
    """Returns round numbers from at or below the smallest to at or above the largest value."""
    low, high = min(values), max(values)
    if low == high:
        low, high = (
            (low - 0.5, high + 0.5) if abs(low) < 1 else (low - abs(low) / 2, high + abs(high) / 2)
        )
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


def thinned(points: list[Point]) -> list[Point]:
    """At most about MOST_POINTS of the points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    return [
        points[round(number * (len(points) - 1) / (MOST_POINTS - 1))]
        for number in range(MOST_POINTS)
    ]


@contextmanager
def _drawing(width: float = WIDTH, height: float = HEIGHT) -> Iterator[Figure]:
    """Gives an empty figure, drawn by matplotlib's own defaults whatever the reader's settings are,
    and the same in every process.
    """
    import matplotlib
    import matplotlib.style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings = {
        "svg.hashsalt": "tasklm",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
    }
    with matplotlib.style.context("default"), matplotlib.rc_context(settings):  # type: ignore[arg-type]
        figure = Figure(figsize=(width / 72, height / 72))
        FigureCanvasSVG(figure)
        figure.patch.set_visible(False)
        yield figure


def _axes(figure: Figure, across: Sequence[float], up: Sequence[float], x_label: str) -> Axes:
    """Returns axes with round ticks on both sides and lines across at those of y."""
    width, height = figure.get_figwidth() * 72, figure.get_figheight() * 72
    place = (LEFT / width, BOTTOM / height, 1 - (LEFT + RIGHT) / width, 1 - (TOP + BOTTOM) / height)
    axes = _bare_axes(figure, place)
    low, high = min(across), max(across)
    y_ticks = [
        y for y in ticks(up) if y >= 0 or min(up) < 0
    ]  # what is never negative needs no axis below 0
    axes.set_xlim(*((low, high) if high > low else (low - 0.5, high + 0.5)))
    axes.set_ylim(y_ticks[0], y_ticks[-1])
    inside = [x for x in ticks(across) if low <= x <= high]
    axes.set_xticks(inside, labels=[number_text(x) for x in inside])
    axes.set_yticks(y_ticks, labels=[number_text(y) for y in y_ticks])
    axes.tick_params(length=0, pad=5, labelsize=FONT, labelcolor=colour("soft"))
    axes.grid(axis="y", color=colour("rule"), linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(x_label, fontsize=FONT, color=colour("soft"), labelpad=3, parse_math=False)
    return axes


def _bare_axes(figure: Figure, place: tuple[float, float, float, float]) -> Axes:
    axes = figure.add_axes(place)
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def _svg(
    figure: Figure, title: str, hints: Mapping[str, Sequence[str]], classes: Mapping[str, str]
) -> Html:
    written = io.StringIO()
    figure.savefig(
        written,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    return inline(written.getvalue(), title, hints, classes)


def _paint(square: NDArray[np.uint8], weights: Any) -> None:
    """Colours a square of pixels by weights between 0 and 1; their roots, so that small ones are
    seen.
    """
    shown = np.sqrt(np.clip(np.nan_to_num(np.asarray(weights, dtype=float)), 0.0, 1.0))
    tall, wide = min(square.shape[0], shown.shape[0]), min(square.shape[1], shown.shape[1])
    square[:tall, :wide, :3] = PICTURE_COLOUR
    square[:tall, :wide, 3] = np.round(255 * shown[:tall, :wide])


def _frame(axes: Axes, left: int, top: int, cell: int, gap: int, kind: str, gid: str) -> None:
    from matplotlib.patches import Rectangle

    ink, line = KIND_LINES.get(kind, ("rule", "-"))
    corner, side = (left + gap / 2, top + gap / 2), cell - gap
    thick = 2.0 if kind in KIND_LINES else 0.8
    axes.add_patch(
        Rectangle(
            corner,
            side,
            side,
            fill=False,
            edgecolor=colour(ink),
            linewidth=thick,
            linestyle=line,
            gid=gid,
        )
    )


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
