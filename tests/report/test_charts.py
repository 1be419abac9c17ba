"""The charts put things where their numbers say."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from tasklm.report.bar_tables import Range, bars, ranges
from tasklm.report.charts import (
    MOST_POINTS,
    head_grid,
    heat_map,
    histogram,
    legend,
    line_chart,
    reliability,
    scatter,
    thinned,
)
from tasklm.report.drawing import LEFT, RIGHT, WIDTH, number_text, ticks
from tests.report.parts import insights


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 10], [0, 2, 4, 6, 8, 10]),
        ([0.31, 0.69], [0.3, 0.4, 0.5, 0.6, 0.7]),
        ([-1, 1], [-1, -0.5, 0, 0.5, 1]),
        ([3, 3], [1, 2, 3, 4, 5]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(values: list[float], expected: list[float]) -> None:
    made = ticks(values)
    assert made == pytest.approx(expected)
    assert made[0] <= min(values) and made[-1] >= max(values)


def marks_of(figure: str) -> list[tuple[float, float, str]]:
    """Returns place and hint of each round mark."""
    found = re.findall(
        r'<circle cx="([^"]+)" cy="([^"]+)" r="[^"]+"><title>([^<]*)</title>', figure
    )
    return [(float(x), float(y), hint) for x, y, hint in found]


def test_lines_rise_with_their_values_and_skip_what_is_no_number() -> None:
    figure = line_chart(
        "dev", {"up": [(0, 0.0), (5, float("nan")), (10, 1.0)], "gone": [(0, float("inf"))]}
    )
    (left, low, first), (right, high, second) = marks_of(figure)
    assert (left, right) == (LEFT, WIDTH - RIGHT) and low > high  # the y axis of SVG points down
    assert (first, second) == ("up: 0 at step 0", "up: 1 at step 10")
    assert "gone" not in figure
    assert line_chart("none", {"a": []}) == ""


def test_marks_stand_where_the_line_of_ticks_says() -> None:
    """Places are linear in the values: three marks against the two outer ones."""
    (x0, y0, _), (x1, y1, _), (x2, y2, _) = marks_of(
        line_chart("dev", {"a": [(0, 2.0), (25, 2.5), (100, 4.0)]})
    )
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.25, abs=1e-3)
    assert (y1 - y0) / (y2 - y0) == pytest.approx(0.25, abs=1e-3)


def test_one_point_is_drawn_in_the_middle() -> None:
    ((x, _, _),) = marks_of(line_chart("dev", {"a": [(7, 0.5)]}))
    assert x == pytest.approx((LEFT + WIDTH - RIGHT) / 2)


def test_long_lines_are_thinned_but_keep_their_ends() -> None:
    points = [(float(step), float(step)) for step in range(10_000)]
    kept = thinned(points)
    assert len(kept) == MOST_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(set(kept))


def test_histogram_counts_every_value_once() -> None:
    for values in ([1, 1, 2, 7], [0.5, 1.25, 1.5, 99.0], [3.5], [4, 4]):
        figure = histogram("h", values, "x")
        assert sum(int(count) for count in re.findall(r": ([\d,]+)</title>", figure)) == len(values)
    assert histogram("h", [], "x") == ""
    whole = histogram("ranks", [1, 1, 2, 7], "rank")
    assert whole.count("<title>") == 7 and "0.5 to 1.5: 2<" in whole


def test_bars_are_as_long_as_their_values() -> None:
    def widths(figure: str) -> list[float]:
        return [float(width) for width in re.findall(r"width:([\d.]+)%", figure)]

    assert widths(bars([("a", 10, ""), ("b", 5, ""), ("c", 0, "")])) == [100, 50, 0]
    assert widths(bars([("a", 1000, ""), ("b", 10, "")], log=True)) == pytest.approx([100, 33.3])
    assert bars([("a", 0, "")]) == ""


def test_intervals_lie_around_their_means() -> None:
    rows = [
        Range("a", 0.5, 0.4, 0.7, [0.45, 0.55], "50"),
        Range("b", 0.2, None, None, [0.2], "20"),
    ]
    drawn = ranges(rows)
    low, right, *singles, mean, other = (
        float(number) for number in re.findall(r"(?:left:|- )([\d.]+)%", drawn)
    )
    assert (low, right) == pytest.approx((2 + 96 * 0.4, 98)) and singles == pytest.approx(
        [2 + 96 * 0.5, 2 + 96 * 0.7]
    )
    assert (mean, other) == pytest.approx((2 + 96 * 0.6, 2))
    assert ranges([]) == ""


def test_a_reliable_model_lies_on_the_diagonal() -> None:
    figure = reliability(
        "r",
        [{"confidence": c, "accuracy": c, "count": 5} for c in (0.25, 0.75)]
        + [{"confidence": 0, "accuracy": 0, "count": 0}],
        "",
    )
    (x0, y0, hint), (x1, y1, _) = marks_of(figure)
    assert hint == "confidence 0.250, accuracy 0.250, 5 examples"
    assert (
        (x0 - LEFT) / (WIDTH - LEFT - RIGHT) == pytest.approx(0.25, abs=1e-3)
        and x1 > x0
        and y1 < y0
    )


def test_points_keep_their_places_and_texts() -> None:
    figure = scatter(
        "s", [[0, 0], [1, 1], [2, 4]], [(0, [2, 0]), (None, [1])], ["zero", "one", "two $x$ <b>"]
    )
    two, zero, one = marks_of(figure)
    assert (two[2], zero[2], one[2]) == ("two $x$ &lt;b&gt;", "zero", "one")
    assert (one[0] - zero[0]) / (two[0] - zero[0]) == pytest.approx(0.5, abs=1e-3)
    assert (one[1] - zero[1]) / (two[1] - zero[1]) == pytest.approx(0.25, abs=1e-3)
    assert "var(--c0)" in figure and "var(--soft)" in figure


def picture_of(figure: str) -> np.ndarray:
    (source,) = re.findall(r'href="data:image/png;base64,([^"]+)"', figure)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source))))


def test_pictures_are_as_strong_as_their_weights() -> None:
    shares = np.array([[1.0, 0.0, 0.25], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert (
        picture_of(heat_map("h", shares))[..., 3].tolist()
        == np.round(255 * np.sqrt(shares)).tolist()
    )
    heads = insights("x", layers=2, heads=3, tokens=8)["attention"]["heads"]
    figure = head_grid("h", heads, 8, [f"hint {number}" for number in range(6)])
    mosaic, cell = picture_of(figure)[..., 3], 10  # eight tokens and a pixel around them
    assert mosaic.shape == (2 * cell, 3 * cell)
    for head in heads:
        top, left = (head["layer"] - 1) * cell + 1, (head["head"] - 1) * cell + 1
        assert (
            mosaic[top : top + 8, left : left + 8].tolist()
            == np.round(255 * np.sqrt(head["picture"])).tolist()
        )
    assert re.findall(r"<title>(hint \d)</title>", figure) == [
        f"hint {number}" for number in range(6)
    ]
    assert "stroke-dasharray" in figure


def test_legends_tell_names_apart_by_colour() -> None:
    made = legend([("a <b>", "1"), ("rest", "2")], grey=[1])
    assert 'chip c0"></span><bdi>a &lt;b&gt;</bdi><b>1</b>' in made and 'chip rest"' in made


def test_numbers_are_short() -> None:
    shown = [number_text(number) for number in (0, 0.25, 1234, 25_000, 2.5e6, 1e-5, 2e20)]
    assert shown == ["0", "0.25", "1234", "25k", "2.5M", "1e-5", "2e20"]
