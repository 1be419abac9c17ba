"""The studies of the package as a table, without anything that trains."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tasklm.studying.study import load_study, studies


def library_table() -> Table:
    """All studies of the package."""
    known = [load_study(name) for name in studies()]
    cells = [[one.name, one.title, one.source] for one in known]
    return drawn("studies", ["name", "what varies", "in"], cells, left=3)


def drawn(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], left: int = 1
) -> Table:
    """A table for the terminal."""
    table = Table(title=Text(title), box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.title_style, table.title_justify = "bold", "left"
    for place, name in enumerate(columns):
        if place < left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    return table
