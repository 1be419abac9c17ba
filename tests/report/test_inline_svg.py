"""Drawings become parts of a page: its colours, no ids, a hint on each mark."""

from __future__ import annotations

import pytest

from tasklm.report.inline_svg import colour, inline

DRAWN = f"""<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 10 10" width="10pt">
 <metadata>made by somebody</metadata><defs><style>*{{}}</style></defs>
 <g id="figure_1"><g id="line"><path d="M 1.23456 2 &#10;L 3 4.5" clip-path="url(#p1)" style="fill: none; stroke: {colour("c1")}"/></g>
 <g id="dots"><defs><path id="m1" d="M 0 2.5 C 1 2.5 2 2 2 0 z" style="stroke: {colour("c0")}"/></defs>
 <g clip-path="url(#p1)"><use xlink:href="#m1" x="1" y="2.000001" style="fill: {colour("c0")}"/>
 <use xlink:href="#m1" x="3" y="4" style="fill: {colour("c0")}"/></g></g>
 <g id="text_1"><text style="font-size: 10px; font-family: 'X'; text-anchor: middle; fill: {colour("soft")}" x="5" y="6"
 transform="rotate(-0 5 6)">7 &lt; 8</text></g></g></svg>"""


def test_a_drawing_is_rebuilt_for_a_page() -> None:
    made = inline(
        DRAWN, "a <title>", {"dots": ["one", "<two>"]}, {"dots": "s0 dot", "line": "s0 line"}
    )
    assert made == (
        '<svg viewBox="0 0 10 10" role="img" aria-label="a &lt;title&gt;">'
        '<g class="s0 line" style="fill: none; stroke: '
        'var(--c1)"><path d="M 1.23 2 L 3 4.5"></path></g>'
        '<g class="s0 dot" style="fill: '
        'var(--c0)"><circle cx="1" cy="2" r="2.5"><title>one</title></circle>'
        '<circle cx="3" cy="4" r="2.5"><title>&lt;two&gt;</title></circle></g>'
        '<text x="5" y="6" style="text-anchor: middle; fill: var(--soft)">7 &lt; 8</text></svg>'
    )


def test_hints_that_do_not_fit_their_marks_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 hints for 2 marks"):
        inline(DRAWN, "t", {"dots": ["one"]}, {})


def test_unknown_elements_are_an_error() -> None:
    with pytest.raises(ValueError, match="<rect>"):
        inline('<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>', "t", {}, {})
