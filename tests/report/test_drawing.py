"""Drawings are parts of a page: its colours, no ids, a hint on each mark."""

from __future__ import annotations

import numpy as np
import pytest

from tasklm.report.drawing import Drawing, Plane


def test_a_drawing_is_a_piece_of_a_page() -> None:
    drawing = Drawing(10, 10.5)
    drawing.line([(1.23456, 2), (3, 4.5)], "c1", 1.6, "s0 line")
    drawing.line([(0, 0.004), (10, 0)], "rule", 0.8)
    drawing.dots([(1, 2.000001), (3, 4)], 2.5, "c0", "s0 dot", ["one", "<two>"])
    drawing.text(5, 6, "7 < 8")
    assert drawing.svg("a <title>") == (
        '<svg viewBox="0 0 10 10.5" role="img" aria-label="a &lt;title&gt;">'
        '<g class="s0 line" style="fill: none; stroke: var(--c1); stroke-width: 1.6; '
        'stroke-linecap: square"><path d="M 1.23 2 L 3 4.5"></path></g>'
        '<path d="M 0 0 L 10 0" style="fill: none; stroke: var(--rule); stroke-width: 0.8; '
        'stroke-linecap: square"></path>'
        '<g class="s0 dot" style="fill: '
        'var(--c0)"><circle cx="1" cy="2" r="2.5"><title>one</title></circle>'
        '<circle cx="3" cy="4" r="2.5"><title>&lt;two&gt;</title></circle></g>'
        '<text x="5" y="6" style="text-anchor: middle; fill: var(--soft)">7 &lt; 8</text></svg>'
    )


def test_a_picture_has_its_place_and_the_size_of_its_pixels() -> None:
    drawing = Drawing()
    drawing.image(np.zeros((2, 3, 4), np.uint8), 30, 20.125, 7.5)
    made = drawing.svg("p")
    assert 'width="3" height="2" transform="matrix(7.5 0 0 7.5 30 20.12)"' in made
    assert 'href="data:image/png;base64,' in made and " id=" not in made


def test_hints_that_do_not_fit_their_marks_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Drawing().dots([(1, 2), (3, 4)], 1, "c0", "dot", ["one"])


def test_a_plane_shows_numbers_between_its_sides() -> None:
    plane = Plane(10, 20, 110, 70, (-1, 1), (0, 5))
    assert plane.places((-1, 0, 1), (0, 1, 5)) == [(10, 70), (60, 60), (110, 20)]
    one = Plane(10, 20, 110, 70, (3, 3), (1e300, 1e300))
    assert (one.x(3), one.y(1e300)) == (60, 45)
