"""A chart of scores as an SVG file of its own: no library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasklm.report.drawing import number_text, ticks
from tasklm.report.page import Html, el

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
_STYLE = """
text { font: 12px sans-serif; fill: #444 } .title { font-weight: bold } .grid { stroke: #8884 } .s0 { stroke: #2563ab; fill: #2563ab }
.s1 { stroke: #b4530f; fill: #b4530f } .join { fill: none; stroke-dasharray: 3 4 } .one { fill-opacity: 0.35; stroke: none }
@media (prefers-color-scheme: dark) { text { fill: #bbb } .s0 { stroke: #7fb2ea; fill: #7fb2ea } .s1 { stroke: #eaa05f; fill: #eaa05f } }
"""


@dataclass(frozen=True)
class Mark:
    """A score of one row: mean, standard deviation, and the single values it is the mean of."""

    mean: float
    sd: float
    values: list[float]


def chart(
    title: str,
    names: Sequence[str],
    series: dict[str, list[Mark | None]],
    x_label: str,
    joined: bool,
) -> str:
    """An SVG: for each name a place on the x axis, for each series a mark there with its standard
    deviation as a bar.
    """
    marks = [mark for one in series.values() for mark in one if mark is not None]
    if not marks:
        return ""
    bounds = [
        value
        for mark in marks
        for value in (mark.mean - mark.sd, mark.mean + mark.sd, *mark.values)
    ]
    steps = ticks(bounds)
    floor, span = HEIGHT - BOTTOM, (WIDTH - LEFT - RIGHT) / len(names)

    def y_of(value: float) -> float:
        return floor - (value - steps[0]) / (steps[-1] - steps[0]) * (floor - TOP)

    def x_of(place: int, number: int) -> float:
        return LEFT + span * (place + 0.5) + 14 * (number - (len(series) - 1) / 2)

    drawn: list[Html] = [el("style", Html(_STYLE)), el("text", title, x=LEFT, y=16, class_="title")]
    for value in steps:
        drawn.append(
            el(
                "line",
                x1=LEFT,
                x2=WIDTH - RIGHT,
                y1=f"{y_of(value):.1f}",
                y2=f"{y_of(value):.1f}",
                class_="grid",
            )
        )
        drawn.append(
            el(
                "text",
                number_text(value),
                x=LEFT - 8,
                y=f"{y_of(value) + 4:.1f}",
                text_anchor="end",
            )
        )
    for place, name in enumerate(names):
        drawn.append(
            el(
                "text",
                name,
                x=f"{LEFT + span * (place + 0.5):.1f}",
                y=floor + 18,
                text_anchor="middle",
            )
        )
    drawn.append(
        el("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle")
    )
    for number, (label, one) in enumerate(series.items()):
        colour = f"s{number}"
        drawn.append(el("circle", cx=WIDTH - 110 + 60 * number, cy=12, r=4, class_=colour))
        drawn.append(el("text", label, x=WIDTH - 102 + 60 * number, y=16))
        there = [(x_of(place, number), mark) for place, mark in enumerate(one) if mark is not None]
        if joined and len(there) > 1:
            points = " ".join(f"{x:.1f},{y_of(mark.mean):.1f}" for x, mark in there)
            drawn.append(el("polyline", points=points, class_=f"{colour} join"))
        for x, mark in there:
            drawn += _marked(x, mark, colour, label, y_of)
    picture = el(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
    )
    return f"{picture}\n"


def _marked(
    x: float, mark: Mark, colour: str, label: str, y_of: Callable[[float], float]
) -> list[Html]:
    top, low, y = y_of(mark.mean + mark.sd), y_of(mark.mean - mark.sd), y_of(mark.mean)
    hint = el("title", f"{label}: {mark.mean:.1f} ± {mark.sd:.1f}")
    singles = [
        el("circle", cx=f"{x + 6:.1f}", cy=f"{y_of(value):.1f}", r=2.5, class_=f"{colour} one")
        for value in mark.values
    ]
    bar = el("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{top:.1f}", y2=f"{low:.1f}", class_=colour)
    return [*singles, bar, el("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=colour)]
