"""Pieces of HTML that are always well-formed and escaped: `el` builds every element and escapes
every plain string.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

# Not allowed in an HTML file or in UTF-8: control characters, lone surrogates, non-characters.
_UNWRITABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
STACKED_FROM = 3  # columns; a narrow screen shows each row of a wider table as a card


class Html(str):
    """Text that is already HTML; anything else is escaped when it is put into an element."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """The value as HTML text; Html stays as it is."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(_UNWRITABLE.sub("\ufffd", str(value)), quote=True))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """One element; `class_` stands for class, underscores for hyphens, None leaves a name out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """The parts as HTML, one after another."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def clipped(text: Any, length: int) -> str:
    """The text cut to about `length` characters, with a note of what is missing."""
    whole = str(text)
    if len(whole) <= length:
        return whole
    return whole[:length].rstrip() + f" … ({len(whole) - length:,} more characters)"


def count_of(number: int, name: str) -> str:
    """A number of things: '1 example', '2 examples'."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def table(
    header: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    left: int = 1,
    strong: Sequence[int] = (),
    keys: Sequence[Sequence[Any]] | None = None,
    label: str = "Table",
) -> Html:
    """A table whose columns after the first `left` hold numbers.

    On narrow screens rows with many columns are stacked, and tables that are still too wide scroll
    on their own. With `keys`, the sort key of each cell, the page's script lets a reader sort it by
    any column.
    """
    styles = [None] * left + ["n"] * (len(header) - left)
    names: list[str | None] = [None] * len(header)
    kinds = []
    if keys is not None:
        kinds.append("sortable")
    if len(header) > STACKED_FROM:
        kinds.append("stacked")
        names[1:] = map(str, header[1:])
    titles = [
        el("th", cell, scope="col", class_=style)
        for cell, style in zip(header, styles, strict=True)
    ]
    body = []
    for number, row in enumerate(rows):
        sort = keys[number] if keys is not None else [None] * len(row)
        cells = [
            el("td", cell, class_=style, data_sort=key, data_name=name)
            for cell, style, key, name in zip(row, styles, sort, names, strict=True)
        ]
        if left:
            cells[0] = el("th", row[0], data_sort=sort[0], scope="row")
        body.append(el("tr", joined(cells), class_="ours" if number in strong else None))
    head = el("thead", el("tr", joined(titles)))
    return scrolling(
        el("table", head, el("tbody", joined(body)), class_=" ".join(kinds) or None), label
    )


def scrolling(content: Html, label: str) -> Html:
    """Content that scrolls sideways on its own, also by keyboard, if the page is narrower."""
    return el("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def items(parts: Iterable[Any]) -> Html:
    """A bulleted list."""
    return el("ul", *(el("li", part) for part in parts))


def passage(text: str, length: int) -> Html:
    """A text from the data, shortened, in its own writing direction."""
    return el("p", clipped(text, length), class_="text", dir="auto")


def word(text: Any, length: int = 60) -> Html:
    """A label or word from the data inside a line, in its own writing direction."""
    return el("bdi", clipped(text, length))


def folded(summary: Any, *content: Any, unfolded: bool = False) -> Html:
    """Content that is shown on request, without any script."""
    return el("details", el("summary", summary), joined(content), open="" if unfolded else None)


def soft(*text: Any) -> Html:
    """A side note in a quieter style."""
    return el("p", joined(text), class_="soft")


def document(title: str, heading: Html, sections: Sequence[tuple[str, str, Html]]) -> str:
    """A whole page: heading, contents, and the sections (name, title, body) that are not empty."""
    links, bodies = [], []
    for name, section_title, body in sections:
        if body:
            links.append(el("a", section_title, href=f"#{name}"))
            top = el("h2", section_title, id=f"{name}-title")
            bodies.append(el("section", top, body, id=name, aria_labelledby=f"{name}-title"))
    contents = el("nav", items(links), aria_label="Contents") if links else ""
    content = joined([heading, contents, el("main", joined(bodies))], "\n")
    script = _file("page.js")
    return Template(_file("template.html")).substitute(
        title=escaped(clipped(title, 200)),
        style=_file("page.css"),
        script=script,
        digest=_digest(script),
        body=content,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """The Content Security Policy that lets a browser run this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
