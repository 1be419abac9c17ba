"""The report of an update: before and after, and the predictions that changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.report.page import Html, clipped, document, el, items, joined, soft, table
from tasklm.updating.lines import HEADER, rows_of, sentences, title_of
from tasklm.updating.record import UpdateResult

MOST_SHOWN = 200  # changed predictions on the page
LONGEST = 300  # characters of a text


def render_page(result: UpdateResult, changed: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    title = f"{Path(result.run).name}: update {result.number}"
    sections = [
        ("scores", "Before and after", _scores(result)),
        ("changed", "Predictions that changed", _changed(result, changed)),
        ("data", "Data", _data(result)),
    ]
    heading = el("header", joined([el("h1", title), items(sentences(result))]))
    return document(f"tasklm: {title}", heading, sections)


def _scores(result: UpdateResult) -> Html:
    drawn = table(list(HEADER), rows_of(result), label="Before and after")
    return joined([soft(title_of(result)), drawn])


def _changed(result: UpdateResult, changed: Sequence[dict[str, Any]]) -> Html:
    if not changed:
        return Html("")
    rows = [
        [clipped(one["text"], LONGEST), *(clipped(one[name], 60) for name in NAMES)]
        for one in changed[:MOST_SHOWN]
    ]
    better = sum(one["after"] == one["truth"] for one in changed)
    worse = sum(one["before"] == one["truth"] for one in changed)
    about = (
        f"{len(changed):,} of the {result.examples[result.split]:,} predictions on {result.split} "
        f"changed: {better:,} are right now, {worse:,} were right before"
    )
    if len(changed) > MOST_SHOWN:
        about += f"; the first {MOST_SHOWN} are shown, all are in changed.jsonl"
    drawn = table(["text", *NAMES], rows, left=4, label="Predictions that changed")
    return joined([soft(f"{about}."), drawn])


NAMES = ("before", "after", "truth")


def _data(result: UpdateResult) -> Html:
    sizes = ", ".join(f"{name} {count:,}" for name, count in result.examples.items())
    return items([f"Examples now: {sizes}.", *result.notes])
