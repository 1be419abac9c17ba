"""Marks around the things that an example is about, such as << and [[: where they stand, for heads that read there.

A head that reads the states at the opening marks beside the first token's is the better one for relations (*Matching the Blanks:
Distributional Similarity for Relation Learning*, arXiv 1906.03158, figure 3 f).
"""

from __future__ import annotations

from collections.abc import Sequence

from tasklm.errors import DataError
from tasklm.tasks.base import Tokeniser, Unit
from tasklm.tasks.examples import Example, Finding, Splits

USUAL = (("<<", "[["), ("<e1>", "<e2>"), ("[E1]", "[E2]"), ("[E1-start]", "[E2-start]"), ("[unused1]", "[unused2]"))  # opening marks
MOST = 7  # marks of a task
MOSTLY = 0.9  # share of train that has marks which are worth a word


def marked_places(example: Example, unit: Unit, marks: Sequence[str], tokeniser: Tokeniser) -> list[int]:
    """Returns the column of the first token of each mark; 0, the first token's, where the texts have no such mark or it was cut off.

    In a pair the first text that has the mark counts.
    """
    spans = [tokeniser.spans(text)[1] for text in example.texts]
    end = unit.second - 1 if unit.second else len(unit.tokens) - 1  # of the first text in the row
    bounds = ((1, end), (unit.second, len(unit.tokens) - 1))
    return [_place(example.texts, spans, bounds, mark) for mark in marks]


def _place(texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]], bounds: Sequence[tuple[int, int]], mark: str) -> int:
    for text, tokens, (start, stop) in zip(texts, spans, bounds, strict=False):
        at = text.find(mark)
        if at >= 0:
            place = start + next((number for number, (_, end) in enumerate(tokens) if end > at), stop)
            return place if place < stop else 0
    return 0


def checked_marks(train: Sequence[Example], marks: Sequence[str]) -> tuple[str, ...]:
    """Returns the marks; raises DataError where one is empty, repeated, or in no training example, or where there are too many."""
    remedy = "Write each opening mark once in kind.marks, as the texts have them, such as '<<,[[', or leave the key out."
    if len(marks) > MOST:
        raise DataError(f"kind.marks has {len(marks)} marks", file=train[0].file, remedy=f"Give at most {MOST}.")
    for number, mark in enumerate(marks):
        if not mark.strip() or mark in marks[:number]:
            raise DataError(f"kind.marks has {'an empty mark' if not mark.strip() else f'{mark!r} twice'}", remedy=remedy)
        if not any(mark in text for example in train for text in example.texts):
            raise DataError(f"no training example has the mark {mark!r}", file=train[0].file, remedy=remedy)
    return tuple(marks)


def usual_marks(examples: Sequence[Example]) -> tuple[str, ...]:
    """Returns the usual opening marks that nearly all of some examples have; none where they have none."""
    texts = [" ".join(example.texts) for example in examples]
    for pair in USUAL:
        if sum(all(mark in text for mark in pair) for text in texts) >= max(1, MOSTLY * len(texts)):
            return pair
    return ()


def mark_findings(splits: Splits, marks: Sequence[str]) -> list[Finding]:
    """Returns which examples lack a mark; where no marks are set, that the texts have usual ones."""
    if not marks:
        usual = usual_marks(splits.train)
        told = f"texts have the marks {' and '.join(usual)}: --kind.marks '{','.join(usual)}' lets the head read there too."
        return [Finding("ok", "marks", told)] if usual else []
    findings = []
    for name, part in splits.named().items():
        bare = [example for example in part if not all(any(mark in text for text in example.texts) for mark in marks)]
        if bare:
            missing = f"{len(bare):,} of the {len(part):,} examples of {name} lack one of the marks {' '.join(marks)}"
            shown = tuple(f"{example.file}, line {example.line}: {example.texts[0][:80]}" for example in bare[:3])
            brief = f"{len(bare):,} examples of {name} lack a mark: mark them, or go on"
            message = f"{missing}; the head reads the first token there. Mark them, or go on."
            findings.append(Finding("warning", "marks", message, shown, brief))
    return findings
