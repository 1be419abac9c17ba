"""Charts of scores as SVG files of their own: no library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasklm.report.drawing import number_text, ticks
from tasklm.report.page import Html, el

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
LETTER = 7  # units that a letter of the legend takes, about
BESIDE = 14  # between the marks of two series at one place
SERIES = 6
_STYLE = """
text { font: 12px sans-serif; fill: #444 } .title { font-weight: bold } .grid { stroke: #8884 } .s0 { stroke: #2563ab; fill: #2563ab }
.s1 { stroke: #b4530f; fill: #b4530f } .s2 { stroke: #2f7d4f; fill: #2f7d4f } .s3 { stroke: #8a4fb0; fill: #8a4fb0 }
.s4 { stroke: #a8324a; fill: #a8324a } .s5 { stroke: #5b6470; fill: #5b6470 }
.join { fill: none; stroke-dasharray: 3 4 } .curve { fill: none; stroke-width: 1.6 } .one { fill-opacity: 0.35; stroke: none }
@media (prefers-color-scheme: dark) { text { fill: #bbb } .s0 { stroke: #7fb2ea; fill: #7fb2ea } .s1 { stroke: #eaa05f; fill: #eaa05f }
.s2 { stroke: #77c796; fill: #77c796 } .s3 { stroke: #c79be6; fill: #c79be6 } .s4 { stroke: #ee8a9e; fill: #ee8a9e }
.s5 { stroke: #aab4c0; fill: #aab4c0 } .join, .curve { fill: none } }
"""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A score of one row: mean, standard deviation, and the single values it is the mean of."""

    mean: float
    sd: float
    values: list[float]


@dataclass(frozen=True)
class Scale:
    """Round numbers along an axis, and where a value stands between two ends."""

    steps: list[float]
    first: float
    last: float

    def at(self, value: float) -> float:
        """The place of a value."""
        share = (value - self.steps[0]) / (self.steps[-1] - self.steps[0])
        return self.first + share * (self.last - self.first)


def chart(
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[Mark | None]],
    x_label: str,
    joined: bool,
) -> str:
    """An SVG: for each name a place on the x axis, for each series a mark there with its standard
    deviation as a bar. Empty without a mark.
    """
    bounds: list[float] = []
    for one in series.values():
        for mark in one:
            if mark is not None:
                bounds += [mark.mean - mark.sd, mark.mean + mark.sd, *mark.values]
    if not bounds:
        return ""
    up = Scale(ticks(bounds), HEIGHT - BOTTOM, TOP)
    span = (WIDTH - LEFT - RIGHT) / len(names)
    places = [LEFT + span * (place + 0.5) for place in range(len(names))]
    drawn = [*_frame(title, list(series), up, x_label)]
    drawn += [_at_floor(name, x) for name, x in zip(names, places, strict=True)]
    for number, (label, one) in enumerate(series.items()):
        colour, shift = f"s{number % SERIES}", BESIDE * (number - (len(series) - 1) / 2)
        there = [(x + shift, mark) for x, mark in zip(places, one, strict=True) if mark is not None]
        if joined and len(there) > 1:
            line = [(x, up.at(mark.mean)) for x, mark in there]
            drawn.append(_polyline(line, f"{colour} join"))
        for x, mark in there:
            drawn += _marked(x, mark, colour, label, up)
    return _picture(title, drawn)


def curves(title: str, series: Mapping[str, Points], x_label: str) -> str:
    """An SVG: a line through the points of each series, in their order. Empty without a point."""
    across: list[float] = []
    upwards: list[float] = []
    for points in series.values():
        across += [x for x, _ in points]
        upwards += [y for _, y in points]
    if not across:
        return ""
    along = Scale(ticks(across), LEFT, WIDTH - RIGHT)
    up = Scale(ticks(upwards), HEIGHT - BOTTOM, TOP)
    drawn = [*_frame(title, list(series), up, x_label)]
    drawn += [_at_floor(number_text(value), along.at(value)) for value in along.steps]
    for number, points in enumerate(series.values()):
        line = [(along.at(x), up.at(y)) for x, y in points]
        drawn.append(_polyline(line, f"s{number % SERIES} curve"))
        if line:
            x, y = line[-1]
            drawn.append(el("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=f"s{number}"))
    return _picture(title, drawn)


def _frame(title: str, labels: Sequence[str], up: Scale, x_label: str) -> list[Html]:
    """Style, title, legend, lines across, and what is told below."""
    drawn = [el("style", Html(_STYLE)), el("text", title, x=LEFT, y=16, class_="title")]
    x = float(WIDTH - RIGHT - sum(LETTER * len(label) + 24 for label in labels))
    for number, label in enumerate(labels):
        drawn.append(el("circle", cx=x, cy=28, r=4, class_=f"s{number % SERIES}"))
        drawn.append(el("text", label, x=x + 8, y=32))
        x += LETTER * len(label) + 24
    for value in up.steps:
        y = f"{up.at(value):.1f}"
        drawn.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        below = f"{up.at(value) + 4:.1f}"
        drawn.append(el("text", number_text(value), x=LEFT - 8, y=below, text_anchor="end"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*drawn, el("text", x_label, x=middle, y=HEIGHT - 6, text_anchor="middle")]


def _at_floor(name: str, x: float) -> Html:
    return el("text", name, x=f"{x:.1f}", y=HEIGHT - BOTTOM + 18, text_anchor="middle")


def _polyline(points: Points, classes: str) -> Html:
    return el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=classes)


def _marked(x: float, mark: Mark, colour: str, label: str, up: Scale) -> list[Html]:
    top, low, y = (up.at(value) for value in (mark.mean + mark.sd, mark.mean - mark.sd, mark.mean))
    hint = el("title", f"{label}: {mark.mean:.1f} ± {mark.sd:.1f}")
    singles = [
        el("circle", cx=f"{x + 6:.1f}", cy=f"{up.at(value):.1f}", r=2.5, class_=f"{colour} one")
        for value in mark.values
    ]
    bar = el("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{top:.1f}", y2=f"{low:.1f}", class_=colour)
    return [*singles, bar, el("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=colour)]


def _picture(title: str, drawn: Sequence[Html]) -> str:
    box = f"0 0 {WIDTH} {HEIGHT}"
    namespace = "http://www.w3.org/2000/svg"
    return f"{el('svg', *drawn, xmlns=namespace, viewBox=box, role='img', aria_label=title)}\n"
