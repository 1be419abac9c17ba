"""The canvas of the charts: an empty matplotlib figure, its axes, and its conversion to HTML."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tasklm.report.inline_svg import colour, inline
from tasklm.report.page import Html, clipped, el

if TYPE_CHECKING:  # matplotlib is imported only when drawing, so that --help is instant
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 300, 176  # units of a drawing; its letters are FONT units high
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34
FONT = 10.5


@contextmanager
def drawing(width: float = WIDTH, height: float = HEIGHT) -> Iterator[Figure]:
    """An empty figure with matplotlib's defaults, whatever the user's settings."""
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


def ruled_axes(figure: Figure, across: Sequence[float], up: Sequence[float], x_label: str) -> Axes:
    """Axes with round ticks on both sides and lines across at those of y."""
    width, height = figure.get_figwidth() * 72, figure.get_figheight() * 72
    place = (LEFT / width, BOTTOM / height, 1 - (LEFT + RIGHT) / width, 1 - (TOP + BOTTOM) / height)
    axes = bare_axes(figure, place)
    low, high = min(across), max(across)
    y_ticks = ticks(up)
    if min(up) >= 0:  # values that are never negative need no axis below 0
        y_ticks = [y for y in y_ticks if y >= 0]
    margin = 0.0 if high > low else 0.5
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(y_ticks[0], y_ticks[-1])
    inside = [x for x in ticks(across) if low <= x <= high]
    axes.set_xticks(inside, labels=[number_text(x) for x in inside])
    axes.set_yticks(y_ticks, labels=[number_text(y) for y in y_ticks])
    axes.tick_params(length=0, pad=5, labelsize=FONT, labelcolor=colour("soft"))
    axes.grid(axis="y", color=colour("rule"), linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(x_label, fontsize=FONT, color=colour("soft"), labelpad=3, parse_math=False)
    return axes


def bare_axes(figure: Figure, place: tuple[float, float, float, float]) -> Axes:
    axes = figure.add_axes(place)
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def svg(
    figure: Figure, title: str, hints: Mapping[str, Sequence[str]], classes: Mapping[str, str]
) -> Html:
    written = io.StringIO()
    figure.savefig(
        written,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    return inline(written.getvalue(), title, hints, classes)


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
