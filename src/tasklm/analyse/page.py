"""Pieces of HTML that cannot be malformed or unescaped: every element is made by `el`, every plain string is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

# What may not stand in an HTML file or cannot be written as UTF-8: controls, lone surrogates, non-characters.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is HTML already; anything else is escaped when it is put into an element."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """Returns the value as HTML text; what is Html already stays as it is."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(_UNWRITABLE.sub("\ufffd", str(value)), quote=True))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """Returns one element; `class_` stands for class, underscores in names for hyphens, None leaves one out."""
    shown = "".join(f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """Returns the parts as HTML, one after another."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def clipped(text: Any, length: int) -> str:
    """Returns the text cut to about `length` characters, with a sign that it was."""
    whole = str(text)
    return whole if len(whole) <= length else whole[:length].rstrip() + f" … ({len(whole) - length:,} more characters)"


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]], *, left: int = 1, strong: Sequence[int] = ()) -> Html:
    """Returns a table that scrolls by itself on narrow screens; columns after the first `left` hold numbers."""
    head = el("tr", *(el("th", cell, scope="col", class_=None if at < left else "n") for at, cell in enumerate(header)))
    body = []
    for number, row in enumerate(rows):
        cells = [el("td", cell, class_=None if at < left else "n") for at, cell in enumerate(row)]
        body.append(el("tr", *cells, class_="ours" if number in strong else None))
    return el("div", el("table", el("thead", head), el("tbody", *body)), class_="scroll", tabindex="0")


def items(parts: Iterable[Any]) -> Html:
    """Returns a bulleted list."""
    return el("ul", *(el("li", part) for part in parts))


def passage(text: str, length: int) -> Html:
    """Returns a text of the data as it is, cut, in its own writing direction."""
    return el("p", clipped(text, length), class_="text", dir="auto")


def folded(summary: Any, *content: Any) -> Html:
    """Returns content that is shown on request, without any script."""
    return el("details", el("summary", summary), *content)
