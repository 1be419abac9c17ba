"""Markers around the entities of an example, such as << and [[, and the words around them.

A head that reads the states at the opening markers beside the first token's is better at relations
(*Matching the Blanks: Distributional Similarity for Relation Learning*, arXiv 1906.03158, figure 3
f). Linear models get the words in and around the markers.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasklm.corpus.words import folded, words
from tasklm.errors import DataError
from tasklm.tasks.base import Tokeniser, Unit
from tasklm.tasks.examples import Example, Finding, Splits

# opening marks
USUAL = (
    ("<<", "[["),
    ("<e1>", "<e2>"),
    ("[E1]", "[E2]"),
    ("[E1-start]", "[E2-start]"),
    ("[unused1]", "[unused2]"),
)
MOST = 7  # marks of a task
MOSTLY = 0.9  # share of train with markers that is worth mentioning
NEAR = 4  # words on either side of what is marked, and those in it where nothing closes a mark
FEW_BETWEEN = 6  # words between two marks that count as a whole too
_ASCII_RUNS = re.compile(r"\w+|[^\w\s]")  # `_runs` of a text without other characters
_MIRRORED = str.maketrans("<>[](){}", "><][)(}{")


def marked_places(
    example: Example, unit: Unit, marks: Sequence[str], tokeniser: Tokeniser
) -> list[int]:
    """The column of the first token of each marker; 0, the first token's, if the texts have no such
    marker or it was cut off.

    In a pair the first text that has the mark counts.
    """
    spans = [tokeniser.spans(text)[1] for text in example.texts]
    end = (unit.second or len(unit.tokens)) - 1  # of the first text in the row
    bounds = ((1, end), (unit.second, len(unit.tokens) - 1))
    return [_place(example.texts, spans, bounds, mark) for mark in marks]


def _place(
    texts: Sequence[str],
    spans: Sequence[Sequence[tuple[int, int]]],
    bounds: Sequence[tuple[int, int]],
    mark: str,
) -> int:
    for text, tokens, (start, stop) in zip(texts, spans, bounds, strict=False):
        at = text.find(mark)
        if at >= 0:
            after = (number for number, (_, end) in enumerate(tokens) if end > at)
            place = start + next(after, stop)
            return place if place < stop else 0
    return 0


def checked_marks(train: Sequence[Example], marks: Sequence[str]) -> tuple[str, ...]:
    """The marks; raises DataError where one is empty, repeated, or in no training example, or where
    there are too many.
    """
    remedy = (
        "Write each opening marker once in kind.marks, as in the texts, such as '<<,[[', or "
        "leave the key out: usual ones are found."
    )
    if len(marks) > MOST:
        raise DataError(
            f"kind.marks has {len(marks)} markers",
            file=train[0].file,
            remedy=f"Give at most {MOST}.",
        )
    for number, mark in enumerate(marks):
        if not mark.strip():
            raise DataError("kind.marks has an empty marker", remedy=remedy)
        if mark in marks[:number]:
            raise DataError(f"kind.marks has {mark!r} twice", remedy=remedy)
        if not any(
            mark in text for text in itertools.chain.from_iterable(one.texts for one in train)
        ):
            raise DataError(
                f"no training example has the marker {mark!r}", file=train[0].file, remedy=remedy
            )
    return tuple(marks)


def usual_marks(examples: Sequence[Example]) -> tuple[str, ...]:
    """The usual opening markers that nearly all examples have; empty if there are none."""
    texts = [" ".join(example.texts) for example in examples]
    for pair in USUAL:
        if sum(all(mark in text for mark in pair) for text in texts) >= max(1, MOSTLY * len(texts)):
            return pair
    return ()


def mark_findings(splits: Splits, marks: Sequence[str]) -> list[Finding]:
    """That the head reads markers, and the examples without one; if it reads none, a hint that the
    texts have usual ones.
    """
    if not marks:
        usual = usual_marks(splits.train)
        if not usual:
            return []
        message = (
            f"texts have the markers {' and '.join(usual)}: "
            f"--kind.marks '{','.join(usual)}' lets the head read them too."
        )
        return [Finding("ok", "marks", message)]
    message = f"the head reads the markers {' and '.join(marks)} beside the first token."
    findings = [Finding("ok", "marks", message)]
    for name, part in splits.named().items():
        bare = [
            example
            for example in part
            if not all(any(mark in text for text in example.texts) for mark in marks)
        ]
        if bare:
            missing = (
                f"{len(bare):,} of the {len(part):,} examples of "
                f"{name} lack one of the markers {' '.join(marks)}"
            )
            examples = tuple(
                f"{example.file}, line {example.line}: {example.texts[0][:80]}"
                for example in bare[:3]
            )
            brief = f"{len(bare):,} examples of {name} lack a marker: add it, or accept this"
            message = (
                f"{missing}; the head reads the first token instead. Add the markers, or accept "
                "this."
            )
            findings.append(Finding("warning", "marks", message, examples, brief))
    return findings


@dataclass(frozen=True)
class Marked:
    """A marked thing in a text."""

    number: int  # of its mark
    begin: int  # where the mark begins
    words: list[str]
    end: int  # where its closing mark ends, or the last of its words


def mark_words(text: str, marks: Sequence[str]) -> list[str]:
    """Tokens for the words in, around and between the marked things of a text, by where they stand.

    The order and the distance of the things have tokens too. These are the lexical features of
    relation extraction before neural networks (Zhou et al., 2005, *Exploring Various Knowledge in
    Relation Extraction*). A text without any of the marks has none.
    """
    possible = (_marked(text, number, marks) for number in range(len(marks)))
    things = sorted((thing for thing in possible if thing), key=lambda thing: thing.begin)
    if not things:
        return []
    order = "-".join(str(thing.number) for thing in things)
    tokens = [f"order={order}"]
    for thing in things:
        tokens += _named(f"in {thing.number}", thing.words, 2)
        tokens += [f"last {thing.number}={word}" for word in thing.words[-1:]]
    before, after = _words(text[: things[0].begin]), _words(text[things[-1].end :])
    tokens += _named("before", before[-NEAR:], 3) + _named(f"{order} before", before[-2:], 2)
    tokens += _named("after", after[:NEAR], 3) + _named(f"{order} after", after[:2], 2)
    tokens += [f"anywhere before={word}" for word in sorted(set(before))]
    tokens += [f"anywhere after={word}" for word in sorted(set(after))]
    for left, right in itertools.pairwise(things):
        between = _words(text[left.end : right.begin])
        pair = f"{left.number}-{right.number}"
        tokens += _named("between", between, 3) + _named(f"{pair} between", between, 3)
        tokens += [f"{pair} apart={min(len(between), 10) // 2}"]
        if len(between) <= FEW_BETWEEN:
            tokens += [f"{pair} all between={' '.join(between)}"]
    return tokens


def _marked(text: str, number: int, marks: Sequence[str]) -> Marked | None:
    """The first thing that a mark opens: up to its closing mark, else a few words after it."""
    mark = marks[number]
    begin = text.find(mark)
    if begin < 0:
        return None
    start = begin + len(mark)
    closings = [(text.find(closing, start), closing) for closing in _closings(mark)]
    closings = [(place, closing) for place, closing in closings if place >= 0]
    if closings:
        place, closing = min(closings)
        return Marked(number, begin, _words(text[start:place]), place + len(closing))
    others = [place for other in marks if other != mark and (place := text.find(other, start)) >= 0]
    rest = text[start : min(others, default=len(text))]
    runs = list(itertools.islice(_runs().finditer(rest), NEAR))
    length = runs[-1].end() if runs else 0
    return Marked(number, begin, _words(rest[:length]), start + length)


def _closings(mark: str) -> Iterator[str]:
    """The closing marks that may belong to an opening one.

    They are >> for <<, </e1> for <e1>, [/E1] for [E1] and [E1-end] for [E1-start]; none where they
    are the mark itself.
    """
    if any(character.isalnum() for character in mark):
        yield f"{mark[:1]}/{mark[1:]}"
        if "start" in mark:
            yield mark.replace("start", "end")
    elif (mirrored := mark[::-1].translate(_MIRRORED)) != mark:
        yield mirrored


def _words(text: str) -> list[str]:
    """The folded words and signs of a text; a character of a script without spaces is one word."""
    if text.isascii():  # nothing to fold but capitals
        return _ASCII_RUNS.findall(text.lower())
    tokens: list[str] = []
    for run in _runs().findall(folded(text)):
        if run.isascii():
            tokens.append(run)
        else:
            # lone surrogates, which JSON cannot store, become question marks
            tokens += words(run) or [run.encode("utf-8", "replace").decode()]
    return tokens


@functools.cache
def _runs() -> re.Pattern[str]:
    """Runs of letters, digits and combining marks (which Python has outside words), or one sign."""
    codes = range(0x300, 0x20000)
    combining = "".join(chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M")
    return re.compile(f"[\\w{combining}]+|[^\\w\\s]")


def _named(where: str, tokens: Sequence[str], longest: int) -> list[str]:
    """The runs of up to so many tokens, with where they stand."""
    runs = [f"{where}={token}" for token in tokens]
    for size in range(2, longest + 1):
        starts = range(len(tokens) - size + 1)
        runs += [f"{where}={' '.join(tokens[start : start + size])}" for start in starts]
    return runs
