"""Names from data in Markdown: whatever they contain, they stay plain text on one line."""

from __future__ import annotations

import re

_SIGNS = re.compile(r"([\\`*_\[\]|~#!])")


def code(text: str) -> str:
    """A text as code, fenced by more backticks than it has in a row."""
    line = " ".join(text.split()) or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    if "`" in line:
        return f"{fence} {line} {fence}"
    return f"{fence}{line}{fence}"


def plain(text: str) -> str:
    """A text with its special characters escaped, so that none is read as Markdown or HTML."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SIGNS.sub(r"\\\1", line)
