"""Looks at a page as a browser would: what it shows, what it would fetch or run, and whether its
elements close.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

VOID = {"meta"}


class Checker(HTMLParser):
    """Fails on an element that is not closed in order; collects what a
    browser would show or fetch.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # element, attribute, value
        self.text: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def shown(self) -> str:
        """All text of the page, hints among it."""
        return "".join(self.text)

    def values(self, name: str) -> list[str]:
        """The values of an attribute, in their order."""
        return [value for _, found, value in self.attributes if found == name]


def checked(page: str) -> Checker:
    """The page as it was read, after the checks that every page must pass."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert len(checker.scripts) == 1  # ours; and no other may run:
    allowed = base64.b64encode(hashlib.sha256(checker.scripts[0].encode()).digest()).decode()
    assert (
        f"script-src 'sha256-{allowed}'" in checker.values("content")[-1]
        and "default-src 'none'" in checker.values("content")[-1]
    )
    assert not [name for _, name, _ in checker.attributes if name.startswith("on")]
    for name in ("href", "src", "xlink:href", "action", "srcset"):
        assert all(
            value.startswith(("#", "data:image/png;base64,")) for value in checker.values(name)
        ), name
    assert not {"link", "iframe", "object", "embed", "base", "form", "img"} & set(checker.names)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", page)
    assert len(checker.values("id")) == len(set(checker.values("id")))
    assert {value for value in checker.values("href") if value.startswith("#")} <= {
        f"#{value}" for value in checker.values("id")
    }
    return checker
