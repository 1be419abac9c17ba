"""A bill of text as rows and sentences, for terminals, pages and model cards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tasklm.bill.record import Bill, LabelledPart, TextPart

HEADER = ("source", "licence", "text", "used", "read", "times", "share")
MOST_ROWS = 30  # that are shown; the rest is summed up
LINEAR = (
    "The model is the linear model of words, fitted on the training examples, because no network "
    "was better on dev: what stage 1 read is not in it."
)


@dataclass(frozen=True)
class Row:
    """A source in the table: what there is of it, what is used, and how much was read."""

    source: str
    licence: str
    text: str
    used: str
    tokens_read: int
    times: float
    share: float

    def cells(self) -> list[str]:
        """The row as text, under HEADER."""
        times = f"{self.times:.2f}" if self.tokens_read else "–"
        return [
            self.source,
            self.licence,
            self.text,
            self.used,
            f"{self.tokens_read:,}",
            times,
            f"{self.share:.1%}",
        ]


def rows_of(bill: Bill, most: int = MOST_ROWS) -> list[Row]:
    """The sources, the most read first; those beyond `most` in one row."""
    pairs, folder = list(bill.parts()), common_folder(bill)
    rows = [_row(_below(folder, path), part) for path, part in pairs[:most]]
    if rest := [part for _, part in pairs[most:]]:
        read = sum(part.tokens_read for part in rest)
        share = sum(part.share for part in rest)
        licences = sorted({part.licence for part in rest})
        one = licences[0] if len(licences) == 1 else f"{len(licences)} licences"
        tokens = sum(part.tokens for part in rest)
        rows.append(Row(f"{len(rest):,} more", one, "", "", read, read / max(1, tokens), share))
    return rows


def _row(source: str, part: TextPart | LabelledPart) -> Row:
    times = part.tokens_read / part.tokens if part.tokens else 0.0
    if isinstance(part, TextPart):
        text, used = f"{part.passages:,} passages", f"{part.selected:,}"
    else:
        text = f"{sum(part.examples.values()):,} examples"
        used = ", ".join(f"{name} {count:,}" for name, count in part.examples.items())
    return Row(source, part.licence, text, used, part.tokens_read, times, part.share)


def common_folder(bill: Bill) -> str:
    """The folder that all sources are in; empty if there is none, or names alone."""
    paths = [Path(path) for path, _ in bill.parts()]
    if not paths or not all(path.is_absolute() for path in paths):
        return ""
    folder = os.path.commonpath([path.parent for path in paths])
    return "" if folder == "/" else folder


def _below(folder: str, path: str) -> str:
    """A path as it is named in a folder."""
    return str(Path(path).relative_to(folder)) if folder else path


def shown_path(path: str) -> str:
    """A path, relative to the folder we are in if it is inside."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if here in Path(path).parents else path


def sentences(bill: Bill) -> list[str]:
    """What the table does not say: totals, exclusions, other text, teachers, network, weights."""
    folder = common_folder(bill)
    where = [f"All sources are in {shown_path(folder)}."] if folder else []
    linear = [LINEAR] if bill.model["kind"] == "linear" else []
    lines = [*where, *linear, _read(bill), *_excluded(bill), *_otherwise(bill), *_left_out(bill)]
    for teacher in bill.teachers:
        lines.append(f"Taught by {teacher['title']}, {_has_bill(teacher['bill'])}.")
    if bill.start is not None:
        origin = _has_bill(bill.start["bill"])
        if bill.start["published"]:
            origin = "a published checkpoint: what that has read is not known here"
        lines.append(f"Training started from {bill.start['title']}, {origin}.")
    return [*lines, network_text(bill), f"SHA-256 of the trained weights: {bill.model['sha256']}"]


def _read(bill: Bill) -> str:
    totals = bill.totals
    text = (
        f"Stage 1 read {totals['tokens_read']:,} tokens: "
        f"{totals['tokens_read_of_text']:,} of selected text, "
        f"{totals['tokens_read_of_examples']:,} of labelled examples."
    )
    if totals["held_out"]:
        text += f" {totals['held_out']:,} selected passages were held out of it."
    return text


def _excluded(bill: Bill) -> list[str]:
    """The passages that are not read, and those that stand in several files."""
    parts = [part for file in bill.corpus for part in file.parts]
    counts = {
        "repeated passages": sum(part.repeats for part in parts),
        "passages with words of dev or test": sum(part.contaminated for part in parts),
        "near copies": sum(part.near_copies for part in parts),
        "rows for their licences": sum(file.left_out for file in bill.corpus),
        "leaked examples": sum(data.leaks for data in bill.labelled),
    }
    named = [f"{name} {count:,}" for name, count in counts.items() if count]
    lines = [f"Left out: {', '.join(named)}."] if named else []
    if elsewhere := sum(part.elsewhere for part in parts):
        several = f"{elsewhere:,} passages occur in several files"
        lines.append(f"{several}; they count for the first of these.")
    return lines


def _otherwise(bill: Bill) -> list[str]:
    """How text got into the weights otherwise than by stage 1."""
    parts = [part for file in bill.corpus for part in file.parts]
    lines = [_vocabulary(bill)]
    if tokens := sum(part.tokens_counted for part in parts):
        counts = f"counts in {tokens:,} tokens of selected text"
        lines.append(f"The first embeddings come from {counts}.")
    if passages := sum(part.vector_passages for part in parts):
        vectors = f"word vectors of {passages:,} passages, spread over the corpus"
        lines.append(f"The linear model has {vectors}.")
    if texts := sum(part.stage2_texts for part in parts):
        lines.append(f"Stage 2 also read {texts:,} pieces of selected passages.")
    for other in bill.others:
        if other["texts"]:
            count = f"{other['texts']:,} texts of {shown_path(other['path'])}"
            lines.append(f"Stage 2 also read {count}, without labels.")
    return lines


def _vocabulary(bill: Bill) -> str:
    for other in bill.others:
        if other["role"] == "vocabulary":
            return f"The vocabulary is that of {shown_path(other['path'])}."
    if bill.start is not None:
        return f"The vocabulary is that of {bill.start['title']}."
    learnt = "the training examples"
    if bill.totals["selected"]:
        learnt = "the training examples and all selected passages"
    return f"The vocabulary was learnt from {learnt}."


def _left_out(bill: Bill) -> list[str]:
    if not bill.left_out:
        return []
    names = [shown_path(one["path"]) for one in bill.left_out]
    more = f" and {len(names) - MOST_ROWS:,} more" if len(names) > MOST_ROWS else ""
    return [f"Left out of the corpus on purpose: {', '.join(names[:MOST_ROWS])}{more}."]


def _has_bill(values: object) -> str:
    return "with its own bill" if values else "which has no bill"


def network_text(bill: Bill) -> str:
    """What was seen of the network, and how."""
    seen = bill.network
    text = f"Network: {seen['statement']}, by {seen['how']}. Not seen: {seen['not_seen']}."
    if seen["named_by_the_recipe"]:
        text += f" The recipe names {', '.join(seen['named_by_the_recipe'])}."
    if seen["of_them_cut_off"]:
        text += (
            f" {seen['of_them_cut_off']} of {seen['processes']} processes were cut off: their last "
            "calls are not known."
        )
    return text


def licences_of(bill: Bill) -> list[str]:
    """The licences of all that was read, each once."""
    read = [part.licence for _, part in bill.parts() if part.tokens_read]
    return sorted(dict.fromkeys(read))
