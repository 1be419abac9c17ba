"""The part of the report that says what sets of labels promise, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklm.coverage.lines import HEADER, rows_of, sentences
from tasklm.coverage.measured import Measured
from tasklm.report.page import Html, clipped, el, items, joined, table

MOST_TEXT = 1000  # characters of a sentence


def label_sets(measured: Mapping[str, Sequence[Measured]]) -> Html:
    """A table and what it means, for each of several tasks under its name; nothing without sets."""
    parts = []
    for name, own in measured.items():
        if name:
            parts.append(el("h3", clipped(name, 100)))
        cells = [[clipped(cell, 200) for cell in row] for row in rows_of(own)]
        parts.append(table(HEADER, cells, left=1, label="Promised and measured coverage"))
        parts.append(items(clipped(sentence, MOST_TEXT) for sentence in sentences(own)))
    return joined(parts)
