"""Promised and measured coverage as rows and sentences, for pages and model cards."""

from __future__ import annotations

from collections.abc import Sequence

from tasklm.coverage.measured import FEWEST_OF_CLASS, Measured

HEADER = ("promised", "measured on test", "mean size", "single", "unknown", "lowest class")
MEANING = (
    "A set has the right answer in the promised share of all cases, if new texts are drawn like "
    "those of dev; an unknown text has no set and counts as missed. The interval is where the "
    "share lies on more texts like those of test."
)
CHOSEN_ON_DEV = "Dev also chose the model, so coverage measured there is optimistic: trust test."
NO_TEST = (
    "There is no test set (--test), so coverage is not measured: the promise rests "
    "on dev alone, which also chose the model."
)


def rows_of(measured: Sequence[Measured]) -> list[list[str]]:
    """Each promise as text, under HEADER."""
    return [_row(one) for one in measured]


def _row(one: Measured) -> list[str]:
    promised = f"{one.promised:.0%}"
    if one.dev < one.needs:
        return [promised, f"takes {one.needs:,} dev examples", "–", "–", "–", "–"]
    if not one.count:
        return [promised, "–", "–", "–", "–", "–"]
    low, high = one.interval
    listed = [
        (right / count, name)
        for name, (right, count) in one.by_class.items()
        if count >= FEWEST_OF_CLASS
    ]
    lowest = "–"
    if listed:
        share, name = min(listed)
        lowest = f"{share:.1%} ({name})"
    return [
        promised,
        f"{one.coverage:.1%} [{low:.1%}, {high:.1%}]",
        f"{one.size:.2f}",
        f"{one.single / one.count:.1%}",
        f"{(one.unlike + one.empty) / one.count:.1%}",
        lowest,
    ]


def sentences(measured: Sequence[Measured]) -> list[str]:
    """What the rows do not say."""
    first = measured[0]
    tested = [one for one in measured if one.count]
    lines = [f"Calibrated on {first.dev:,} dev examples. {MEANING}"]
    lines.append(CHOSEN_ON_DEV if tested else NO_TEST)
    for one in tested:
        low, high = one.expected
        if not low <= one.coverage <= high:
            lines.append(
                f"At {one.promised:.0%} the measured coverage is outside {low:.1%} to {high:.1%}, "
                "the range expected in 95 of 100 cases if dev and test are alike: they may come "
                "from different sources or times."
            )
    return lines
