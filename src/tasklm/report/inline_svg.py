"""From a drawing of matplotlib to a piece of a page: the page's colours, no ids, hints on marks.

Nothing in the result refers to anything by id, so that any number of drawings can stand in one
page: markers become circles, and clipping, which no drawing here needs, is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from tasklm.report.page import Html, el, joined

SERIES = 10  # colours c0 … c9 of the page's style
_NAMES = ("ink", "soft", "rule", *(f"c{number}" for number in range(SERIES)))
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_SENTINEL = re.compile(r"#fe01([0-9a-f]{2})")
_LONG = re.compile(r"\d+\.\d{3,}")
_FONT = ("font-size", "font-family")  # the page's style says these


def colour(name: str) -> str:
    """The placeholder colour that becomes the page's colour of this name, light or dark."""
    return f"#fe01{_NAMES.index(name):02x}"


def inline(
    drawing: str, title: str, hints: Mapping[str, Sequence[str]], classes: Mapping[str, str]
) -> Html:
    """A drawing as an element of a page.

    `hints` gives the marks of a group (of matplotlib's gid) what is shown on hover, in their order;
    `classes` gives groups a class.
    """
    root = ElementTree.fromstring(drawing)
    radii = {
        path.get("id", ""): _radius(path.get("d", ""))
        for path in root.iterfind(f".//{_SVG}defs/{_SVG}path")
    }
    content = joined(_rebuilt(child, radii, hints, classes) for child in root)
    return el("svg", content, viewBox=root.get("viewBox"), role="img", aria_label=title)


def _rebuilt(
    node: ElementTree.Element,
    radii: Mapping[str, float],
    hints: Mapping[str, Sequence[str]],
    classes: Mapping[str, str],
) -> Html:
    tag, name = node.tag.removeprefix(_SVG), node.get("id", "")
    if tag in ("metadata", "defs"):
        return Html("")
    if name in hints or name in classes:
        return _group(node, radii, hints.get(name), classes.get(name))
    if tag == "g":
        return joined(_rebuilt(child, radii, hints, classes) for child in node)
    return _mark(node, radii, None, _style(node))


def _group(
    node: ElementTree.Element,
    radii: Mapping[str, float],
    hints: Sequence[str] | None,
    class_: str | None,
) -> Html:
    marks = [
        mark
        for mark in node.iter()
        if mark.tag in (f"{_SVG}use", f"{_SVG}path") and "id" not in mark.attrib
    ]
    if hints is not None and len(hints) != len(marks):
        raise ValueError(f"{len(hints)} hints for {len(marks)} marks of {node.get('id')}")
    each: Sequence[str | None] = hints or [None] * len(marks)
    content = [_mark(mark, radii, hint, None) for mark, hint in zip(marks, each, strict=True)]
    return el("g", joined(content), class_=class_, style=_style(marks[0]) if marks else None)


def _mark(
    node: ElementTree.Element, radii: Mapping[str, float], hint: str | None, style: str | None
) -> Html:
    """One mark; a group gives its marks their style, so that it is written once."""
    tag = node.tag.removeprefix(_SVG)
    title = el("title", hint) if hint is not None else ""
    if tag == "use":
        at = {
            "cx": _short(node.get("x", "")),
            "cy": _short(node.get("y", "")),
            "r": f"{radii[node.get(_LINK, '')[1:]]:g}",
        }
        return el("circle", title, **at, style=style)
    if tag == "text":
        turned = node.get("transform", "")
        if re.match(r"rotate\(-?0[ ,]", turned):
            turned = ""
        return el(
            "text",
            node.text or "",
            x=_short(node.get("x", "")),
            y=_short(node.get("y", "")),
            transform=_short(turned) or None,
            style=style,
        )
    if tag == "image":
        source = re.sub(r"\s+", "", node.get(_LINK, ""))
        size = {
            "width": node.get("width"),
            "height": node.get("height"),
            "transform": node.get("transform"),
        }
        return el("image", href=source, class_="pixels", **size)
    if tag != "path":
        raise ValueError(f"a drawing holds <{tag}>, which a page does not know")
    return el("path", title, d=_short(" ".join(node.get("d", "").split())), style=style)


def _style(node: ElementTree.Element) -> str | None:
    rules = [rule.strip() for rule in node.get("style", "").split(";") if rule.strip()]
    style = "; ".join(rule for rule in rules if rule.split(":")[0] not in _FONT)
    return _SENTINEL.sub(lambda match: f"var(--{_NAMES[int(match[1], 16)]})", style) or None


def _short(numbers: str) -> str:
    return _LONG.sub(lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), numbers)


def _radius(path: str) -> float:
    """The radius of a round marker, whose path begins at its top or bottom."""
    start = re.match(r"M\s+-?0\s+(-?[\d.]+)", path)
    if start is None:
        raise ValueError(f"a marker is not round: {path[:40]}")
    return round(abs(float(start[1])), 2)
