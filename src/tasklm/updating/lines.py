"""What came of an update, in lines for a terminal and for Python's `print`."""

from __future__ import annotations

from pathlib import Path

from tasklm.console.durations import duration
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import metric_name
from tasklm.run_folder import MODEL, REPORT
from tasklm.updating.record import UpdateResult, folder_of

HEADER = ("examples", "number", "metric", "before", "after", "after − before")


def rows_of(result: UpdateResult) -> list[list[str]]:
    """The cells of the table before and after, under HEADER."""
    return [
        [
            group.name,
            f"{group.examples:,}",
            metric_name(group.metric),
            f"{100 * group.before:.1f}",
            f"{100 * group.after:.1f}",
            difference_text(group.difference),
        ]
        for group in result.groups
    ]


def difference_text(difference: Difference) -> str:
    """A difference × 100 with its interval."""
    low, high = 100 * difference.low, 100 * difference.high
    return f"{100 * difference.difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def title_of(result: UpdateResult) -> str:
    """What the numbers of the table are."""
    return (
        f"scores × 100 on the same {result.split} set, [{result.confidence:.0%} interval, paired]"
    )


def sentences(result: UpdateResult) -> list[str]:
    """What the table does not say."""
    run = Path(result.run)
    folder = folder_of(run, result.number)
    share = ""
    if result.first_seconds:
        share = f", {result.share:.0%} of the {duration(result.first_seconds)} of the first run"
    lines = [f"update {result.number} took {duration(result.seconds)}{share}"]
    if result.new_classes:
        lines.append(f"new classes: {', '.join(result.new_classes)}")
    if result.steps:
        lines.append(
            f"the network took {result.steps:,} steps: it read new examples "
            f"{result.new_read:,} times and earlier ones {result.replayed:,} times"
        )
    lines.append(
        f"{result.changed:,} predictions on {result.split} changed: {folder / 'changed.jsonl'}"
    )
    dev = f"{100 * result.dev_before:.1f} before, {100 * result.dev_after:.1f} after"
    if result.published:
        lines.append(f"{run / MODEL} is the updated model (dev {dev})")
        lines.append(back_text(result))
    else:
        lines.append(
            f"{run / MODEL} stays as it was, because the updated model is worse on dev ({dev}); "
            f"look at it with: tasklm predict {folder / MODEL} … or {folder / REPORT}"
        )
    return lines


def back_text(result: UpdateResult) -> str:
    """How to go back to the first model."""
    run = Path(result.run)
    first = folder_of(run, 0) / MODEL
    return f"the first model is {first}; to go back: rm -r {run / MODEL} && cp -r {first} {run}/"


def lines_of(result: UpdateResult) -> list[str]:
    """The table and the sentences as plain lines."""
    cells = [list(HEADER), *rows_of(result)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADER))]
    lines = [title_of(result)]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return [*lines, *sentences(result)]
