"""Pieces of HTML that cannot be malformed or unescaped: every element is made by `el`, every plain
string is escaped.
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

# What may not stand in an HTML file or cannot be written as UTF-8: controls, lone surrogates,
# non-characters.
_UNWRITABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
STACKED_FROM = 3  # columns; of tables with more, a narrow screen shows each row as a card


class Html(str):
    """Text that is HTML already; anything else is escaped when it is put into an element."""

    __slots__ = ()


def escaped(value: Any) -> Html:
    """The value as HTML text; what is Html already stays as it is."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(_UNWRITABLE.sub("\ufffd", str(value)), quote=True))


def el(name: str, *children: Any, **attributes: Any) -> Html:
    """One element; `class_` stands for class, underscores in names for hyphens, None leaves one
    out.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(parts: Iterable[Any], between: str = "") -> Html:
    """The parts as HTML, one after another."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def clipped(text: Any, length: int) -> str:
    """The text cut to about `length` characters, with a sign that it was."""
    whole = str(text)
    return (
        whole
        if len(whole) <= length
        else whole[:length].rstrip() + f" … ({len(whole) - length:,} more characters)"
    )


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

    On narrow screens rows of many columns are stacked, and what is still too wide scrolls by
    itself. With `keys`, what each cell is sorted by, the page's script lets a reader sort it by any
    column.
    """
    head = el(
        "tr",
        *(
            el("th", cell, scope="col", class_=None if at < left else "n")
            for at, cell in enumerate(header)
        ),
    )
    body, stacks = [], len(header) > STACKED_FROM
    names = [str(cell) if stacks and at else None for at, cell in enumerate(header)]
    for number, row in enumerate(rows):
        sort = [None] * len(row) if keys is None else keys[number]
        styles = [None if at < left else "n" for at in range(len(row))]
        cells = [
            el(
                "td" if at or not left else "th",
                cell,
                class_=style,
                data_sort=key,
                scope=None if at or not left else "row",
                data_name=name,
            )
            for at, (cell, style, key, name) in enumerate(
                zip(row, styles, sort, names, strict=True)
            )
        ]
        body.append(el("tr", *cells, class_="ours" if number in strong else None))
    kinds = [*(["sortable"] if keys is not None else []), *(["stacked"] if stacks else [])]
    content = el("table", el("thead", head), el("tbody", *body), class_=" ".join(kinds) or None)
    return scrolling(content, label)


def scrolling(content: Html, label: str) -> Html:
    """Returns content that scrolls sideways by itself, with the keyboard too, where the page is
    narrower.
    """
    return el("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def items(parts: Iterable[Any]) -> Html:
    """A bulleted list."""
    return el("ul", *(el("li", part) for part in parts))


def passage(text: str, length: int) -> Html:
    """A text of the data as it is, cut, in its own writing direction."""
    return el("p", clipped(text, length), class_="text", dir="auto")


def word(text: Any, length: int = 60) -> Html:
    """A label or a word of the data inside a line, in its own writing direction."""
    return el("bdi", clipped(text, length))


def folded(summary: Any, *content: Any, shown: bool = False) -> Html:
    """Returns content that is shown on request, without any script."""
    return el("details", el("summary", summary), *content, open="" if shown else None)


def soft(*text: Any) -> Html:
    """A remark in a quieter voice."""
    return el("p", *text, class_="soft")


def document(title: str, heading: Html, sections: Sequence[tuple[str, str, Html]]) -> str:
    """A whole page: its heading, a table of contents and its sections (name, title, content); empty
    ones are left out.
    """
    made = [(name, shown, body) for name, shown, body in sections if body]
    links = el(
        "nav",
        items(el("a", shown, href=f"#{name}") for name, shown, _ in made),
        aria_label="Contents",
    )
    main = [
        el(
            "section",
            el("h2", shown, id=f"{name}-title"),
            body,
            id=name,
            aria_labelledby=f"{name}-title",
        )
        for name, shown, body in made
    ]
    content = joined([heading, links if made else "", el("main", *main)], "\n")
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
    """What lets a browser run this script and no other (Content Security Policy)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
