"""The part of the report that says what the model has read."""

from __future__ import annotations

from tasklm.bill.lines import HEADER, rows_of, sentences
from tasklm.bill.record import Bill
from tasklm.report.page import Html, clipped, items, joined, table

MOST_TEXT = 1000  # characters of a sentence


def text_bill(bill: Bill | None) -> Html:
    """The sources as a table, and the sentences that go with it; nothing without a bill."""
    if bill is None:
        return Html("")
    rows = rows_of(bill)
    cells = [[clipped(cell, 200) for cell in row.cells()] for row in rows]
    keys = [
        [row.source, row.licence, row.text, row.used, row.tokens_read, row.times, row.share]
        for row in rows
    ]
    listed = items(clipped(sentence, MOST_TEXT) for sentence in sentences(bill))
    return joined([table(HEADER, cells, left=4, keys=keys, label="Sources"), listed])
