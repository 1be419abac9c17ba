"""The part of the report about text without labels: what it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklm.report.page import Html, clipped, count_of, el, folded, joined, passage, soft, word

OPEN_CASES = 5  # shown without a click
LONGEST = 400  # characters of a text


def raw_text(changes: Mapping[str, Any] | None, of: str = "") -> Html:
    """Counts of answers about words that are not in train, with and without raw text, and cases."""
    if changes is None or not changes["answers"]:
        return Html("")
    answers = count_of(changes["answers"], "answer")
    counts = (
        f"{answers} concern words that do not occur in train. {changes['right']:,} are right; "
        f"{changes['right_before']:,} were right with labels alone: {changes['gained']:,} gained, "
        f"{changes['lost']:,} lost."
    )
    parts = [el("p", counts)]
    if of:
        parts.append(soft(f"{of} Both models are the best of their seeds on dev."))
    cases = [_case(case) for case in changes["cases"]]
    if cases:
        parts.append(el("h3", "Correct with it, wrong with labels alone"))
        parts += cases[:OPEN_CASES]
    if len(cases) > OPEN_CASES:
        parts.append(folded(f"{len(cases) - OPEN_CASES:,} more", joined(cases[OPEN_CASES:])))
    return joined(parts)


def _case(case: Mapping[str, Any]) -> Html:
    title = el(
        "p",
        joined(
            [
                el("b", word(case["word"])),
                ": ",
                word(case["gold"]),
                ", not ",
                word(case["before"]),
            ]
        ),
    )
    parts = [title, passage(case["text"], LONGEST)]
    if case["count"]:
        stands = f"in {count_of(case['count'], 'raw text')}"
        parts.append(folded(stands, joined([passage(text, LONGEST) for text in case["texts"]])))
    else:
        parts.append(soft("in no raw text"))
    return el("article", joined(parts), aria_label=clipped(case["word"], 60))
