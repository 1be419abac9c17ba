"""The charts put things where their numbers say."""

from __future__ import annotations

import re

import pytest

from tasklm.analyse.charts import MOST_POINTS, bars, histogram, line_chart, number_text, thinned, ticks


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


def points_of(figure: str) -> list[list[float]]:
    path = re.search(r'points="([^"]+)"', figure)
    assert path is not None
    return [[float(number) for number in point.split(",")] for point in path.group(1).split()]


def test_lines_rise_with_their_values_and_skip_what_is_no_number() -> None:
    figure = line_chart("dev", {"up": [(0, 0.0), (5, float("nan")), (10, 1.0)], "gone": [(0, float("inf"))]})
    (left, low), (right, high) = points_of(figure)
    assert left < right and low > high  # the y axis of SVG points down
    assert "gone" not in figure
    assert line_chart("none", {"a": []}) == ""


def test_one_point_is_drawn_in_the_middle() -> None:
    ((x, y),) = points_of(line_chart("dev", {"a": [(7, 0.5)]}))
    assert 200 < x < 300 and 50 < y < 200


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
    assert whole.count("<rect") == 7 and "0.5 to 1.5: 2<" in whole


def test_bars_are_as_long_as_their_values() -> None:
    def widths(figure: str) -> list[float]:
        return [float(width) for width in re.findall(r"width:([\d.]+)%", figure)]

    assert widths(bars([("a", 10, ""), ("b", 5, ""), ("c", 0, "")])) == [100, 50, 0]
    assert widths(bars([("a", 1000, ""), ("b", 10, "")], log=True)) == pytest.approx([100, 33.3])
    assert bars([("a", 0, "")]) == ""


def test_numbers_are_short() -> None:
    shown = [number_text(number) for number in (0, 0.25, 1234, 25_000, 2.5e6, 1e-5, 2e20)]
    assert shown == ["0", "0.25", "1234", "25k", "2.5M", "1e-5", "2e20"]
