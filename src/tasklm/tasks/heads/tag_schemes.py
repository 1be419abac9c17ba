"""Spans written as one tag per word: BIO (also called IOB2), IOB1 and BIOES, their faults, and the
spans that conlleval counts.

BIO: B-X begins a span of type X, I-X continues it, O is outside. IOB1: I-X also begins a span,
B-X only one that follows another of its type. BIOES: E-X ends a span, S-X is a span of one word.
Other letters for the same are M for I, L for E and U for S.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

PLAIN = "plain"  # tags that say nothing about spans, such as parts of speech
BIOES = "BIOES"
SCHEMES = ("BIO", "IOB1", BIOES)
OUTSIDE = "O"
_LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}

Span = tuple[str, int, int]  # type, first word, word after the last


def parts(tag: str) -> tuple[str, str]:
    """The letter and type of a tag: "B-PER" → ("B", "PER"), "O" → ("O", ""); the letter is empty if
    the tag has none.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    letter, dash, kind = tag.partition("-")
    if dash and not kind:
        return "", tag
    return _LETTERS.get(letter, ""), kind


def scheme_of(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme that sequences of tags are in: one of SCHEMES, or PLAIN.

    A few faulty sequences do not change the answer: BIO or IOB1 is what most beginnings of spans
    are written in.
    """
    rows = [list(tags) for tags in sequences]
    names = set(chain.from_iterable(rows)) - {OUTSIDE}
    letters = {parts(tag)[0] for tag in names}
    # bare letters can mean anything (S: subject …), but hardly "B" and "I" together
    bare = any("-" not in tag for tag in names)
    if not names or "" in letters or (bare and not {"B", "I"} <= letters):
        return PLAIN
    if letters & {"E", "S"}:
        return "BIOES"
    by_letter = {"B": 0, "I": 0}
    for tags in rows:
        for before, tag in _steps(tags):
            if tag[0] != OUTSIDE and (before[0] == OUTSIDE or before[1] != tag[1]):
                by_letter[tag[0]] += 1
    return "IOB1" if by_letter["I"] > by_letter["B"] else "BIO"


def _steps(tags: Sequence[str]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yields the parts of each tag and, in front, those of the tag before it."""
    before = (OUTSIDE, "")
    for tag in map(parts, tags):
        yield before, tag
        before = tag


def faults(tags: Sequence[str], scheme: str) -> list[tuple[int, str]]:
    """The words at which tags break the rules of their scheme, and how; none for plain tags."""
    if scheme == PLAIN:
        return []
    problems = []
    for place, (before, tag) in enumerate(_steps([*tags, OUTSIDE])):
        # of a span that this tag may continue
        inside = before[0] in ("B", "I") and before[1] == tag[1]
        opened = scheme == "BIOES" and before[0] in ("B", "I")
        last = place == len(tags)
        if opened and not (inside and tag[0] in ("I", "E")):
            problems.append((place - 1, f"{tags[place - 1]} is not closed by E-{before[1]}"))
        elif not last and not inside and (tag[0] == "E" or (tag[0] == "I" and scheme != "IOB1")):
            where = f"after {tags[place - 1]}" if place else "at the beginning"
            problems.append((place, f"{tags[place]} {where}"))
        elif not last and not inside and tag[0] == "B" and scheme == "IOB1":
            problems.append((place, f"{tags[place]} does not follow a span of its type"))
    return problems


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence in any scheme; illegal steps are repaired as conlleval does: a span
    begins at any new type.
    """
    entities: list[Span] = []
    begin = -1
    for place, (before, tag) in enumerate(_steps([*tags, OUTSIDE])):
        goes_on = (
            begin >= 0 and tag[0] in ("I", "E") and before[0] in ("B", "I") and before[1] == tag[1]
        )
        if begin >= 0 and not goes_on:
            entities.append((before[1], begin, place))
            begin = -1
        if begin < 0 and tag[0] not in (OUTSIDE, ""):
            begin = place
    return entities


def from_spans(entities: Sequence[Span], words: int, scheme: str) -> list[str]:
    """The tags, in a scheme, of spans that do not overlap."""
    tags = [OUTSIDE] * words
    after: dict[int, str] = {}  # where a span ended → its type
    for kind, begin, end in sorted(entities, key=lambda span: span[1]):
        letters = ["B", *"I" * (end - begin - 1)]
        if scheme == "IOB1" and after.get(begin) != kind:
            letters[0] = "I"
        if scheme == "BIOES" and end > begin + 1:
            letters[-1] = "E"
        elif scheme == "BIOES":
            letters = ["S"]
        ending = f"-{kind}" if kind else ""
        tags[begin:end] = [letter + ending for letter in letters]
        after[end] = kind
    return tags


def converted(tags: Sequence[str], scheme: str) -> list[str]:
    """The same spans in another scheme."""
    return from_spans(spans(tags), len(tags), scheme)


def learned(tags: list[str], recoded: bool) -> list[str]:
    """Tags as a model learns them: in BIOES where it is to learn the ends of spans, else theirs."""
    if not recoded:
        return tags
    return converted(tags, BIOES)


def entities(
    text: str, bounds: Sequence[tuple[int, int]], tags: Sequence[str]
) -> list[dict[str, Any]]:
    """The entities of tagged words, whose begins and ends in the text are given."""
    return [
        {
            "type": kind,
            "text": text[bounds[first][0] : bounds[after - 1][1]],
            "begin": bounds[first][0],
            "end": bounds[after - 1][1],
            "words": [first, after - 1],
        }
        for kind, first, after in spans(tags)
    ]
