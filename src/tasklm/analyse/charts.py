"""Small charts as inline SVG: no library, no script; colours come from the page, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasklm.analyse.page import Html, el, escaped

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 40
COLOURS = 6  # classes c0 … c5 of the page's style
MOST_POINTS = 300  # per line: more than the eye can tell apart

Point = tuple[float, float]


def line_chart(title: str, series: Mapping[str, Sequence[Point]], x_label: str = "step") -> Html:
    """Returns a figure with one line per name, or nothing when no point is finite."""
    lines = {name: thinned(sorted(_finite(points))) for name, points in series.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Html("")
    every = [point for points in lines.values() for point in points]
    x_ticks, y_ticks = ticks([x for x, _ in every]), ticks([y for _, y in every])
    x_of = _scale(min(x for x, _ in every), max(x for x, _ in every), LEFT, WIDTH - RIGHT)
    y_of = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    drawn = []
    for number, (name, points) in enumerate(lines.items()):
        colour = f"c{number % COLOURS}"
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        hint = el("title", f"{name}: {number_text(points[-1][1])} at {x_label} {number_text(points[-1][0])}")
        drawn.append(el("polyline", hint, points=path, class_=f"line {colour}"))
        if len(points) <= 40:
            drawn += [
                el(
                    "circle",
                    el("title", f"{name}: {number_text(y)} at {x_label} {number_text(x)}"),
                    cx=f"{x_of(x):.1f}",
                    cy=f"{y_of(y):.1f}",
                    r="3",
                    class_=f"dot {colour}",
                )
                for x, y in points
            ]
    inside = [x for x in x_ticks if min(x for x, _ in every) <= x <= max(x for x, _ in every)]
    axes = _axes([(x_of(x), x) for x in inside], [(y_of(y), y) for y in y_ticks], x_label)
    legend = el(
        "ul",
        *(
            el("li", el("span", class_=f"chip c{number % COLOURS}"), f" {name} ", el("b", number_text(points[-1][1])))
            for number, (name, points) in enumerate(lines.items())
        ),
        class_="legend",
    )
    return _figure(title, el("g", *axes, *drawn), legend)


def histogram(title: str, values: Sequence[float], x_label: str, bins: int = 24) -> Html:
    """Returns a figure of how often values occur, or nothing when there are none."""
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        return Html("")
    low, high = min(finite), max(finite)
    if all(value == int(value) for value in finite) and high - low < bins:
        low, high, bins = low - 0.5, high + 0.5, int(high - low) + 1  # whole numbers: a bar each
    elif low == high:
        low, high, bins = low - 0.5, high + 0.5, 1
    counts = [0] * bins
    for value in finite:
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    y_ticks = ticks([0, max(counts)])
    x_of, y_of = _scale(low, high, LEFT, WIDTH - RIGHT), _scale(0, y_ticks[-1], HEIGHT - BOTTOM, TOP)
    step = (high - low) / bins
    drawn = []
    for number, count in enumerate(counts):
        left, right = low + number * step, low + (number + 1) * step
        hint = el("title", f"{number_text(left)} to {number_text(right)}: {count:,}")
        drawn.append(
            el(
                "rect",
                hint,
                x=f"{x_of(left) + 0.5:.1f}",
                width=f"{max(0.5, x_of(right) - x_of(left) - 1):.1f}",
                y=f"{y_of(count):.1f}",
                height=f"{HEIGHT - BOTTOM - y_of(count):.1f}",
                class_="bar c0",
            )
        )
    inside = [x for x in ticks([low, high]) if low <= x <= high]
    return _figure(title, el("g", *_axes([(x_of(x), x) for x in inside], [(y_of(y), y) for y in y_ticks], x_label), *drawn))


def bars(rows: Sequence[tuple[Any, float, Any]], *, log: bool = False, strong: Sequence[int] = ()) -> Html:
    """Returns horizontal bars (label, value, text behind it) as a table, which stays readable on a phone."""
    positive = [value for _, value, _ in rows if value > 0]
    if not positive:
        return Html("")
    low = math.log10(min(positive)) - 1 if log else 0.0
    span = (math.log10(max(positive)) if log else max(positive)) - low
    made = []
    for number, (label, value, text) in enumerate(rows):
        share = 0.0 if value <= 0 else 100 * ((math.log10(value) if log else value) - low) / span
        bar = el("span", class_=f"hbar {'c1' if number in strong else 'c0'}", style=f"width:{share:.1f}%")
        made.append(
            el(
                "tr",
                el("th", label, scope="row"),
                el("td", bar, class_="track"),
                el("td", text, class_="n"),
                class_="ours" if number in strong else None,
            )
        )
    return el("table", el("tbody", *made), class_="bars")


def ticks(values: Sequence[float], about: int = 5) -> list[float]:
    """Returns round numbers from at or below the smallest to at or above the largest value."""
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 0.5, high + 0.5) if abs(low) < 1 else (low - abs(low) / 2, high + abs(high) / 2)
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """Returns a number short enough for an axis."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1000:.4g}k"
    if 1e6 <= abs(value) < 1e9:
        return f"{value / 1e6:.4g}M"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def thinned(points: list[Point]) -> list[Point]:
    """Returns at most about MOST_POINTS of the points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return points
    return [points[round(number * (len(points) - 1) / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _scale(low: float, high: float, start: float, end: float) -> Any:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start) if high > low else (start + end) / 2


def _axes(x_marks: list[tuple[float, float]], y_marks: list[tuple[float, float]], x_label: str) -> list[Html]:
    floor = HEIGHT - BOTTOM
    made = []
    for at, value in y_marks:
        made.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="grid"))
        made.append(el("text", number_text(value), x=LEFT - 6, y=f"{at + 4:.1f}", text_anchor="end"))
    for at, value in x_marks:
        made.append(el("text", number_text(value), x=f"{at:.1f}", y=floor + 16, text_anchor="middle"))
    made.append(el("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, text_anchor="middle", class_="label"))
    return made


def _figure(title: str, drawing: Html, legend: Html | None = None) -> Html:
    picture = el("svg", drawing, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title)
    return el("figure", el("figcaption", title), picture, legend if legend is not None else escaped(""))
