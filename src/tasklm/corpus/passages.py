"""Splits long documents into passages at the ends of sentences."""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator

from tasklm.corpus.words import count_words, words

_SENTENCE_END = re.compile(
    # begin at the first of several stops: trying each would take quadratic time on long rows of
    # dots
    r"(?<![.!?…؟۔।॥։።])"
    # with a space after it, or it is a number or an address
    r"(?P<stop>[.!?…؟۔।॥։።]+)[\"'”’»›)\]]*\s+"
    r"|[。！？｡]+[」』”’）)]*\s*"
    r"|\n\s*\n\s*"  # paragraphs
)
_LINE_END = re.compile(r"[\n\r]+\s*")
_SPACE = re.compile(r"\s+")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """
    mr mrs ms dr prof rev hon st jr sr vs etc al e.g i.e cf eq eqs fig figs tab sec no nos vol
    pp p ed eds approx dept inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec bzw
    z.b d.h u.a ca usw evtl m mme mlle cap art núm sra
""",
    )
)
# characters; anything longer is data, not a word, and is cut so that passages stay bounded
_LONGEST_WORD = 1000


def split_passages(text: str, most_words: int) -> Iterator[str]:
    """Yields pieces of about equal length, of at most `most_words` words, cut at ends of sentences
    where possible.
    """
    for piece, _ in counted_passages(text, most_words):
        yield piece


def counted_passages(text: str, most_words: int) -> Iterator[tuple[str, int]]:
    """Yields the pieces of `split_passages` with their numbers of words."""
    total = count_words(text)
    if total <= most_words and len(text) <= most_words * _LONGEST_WORD:
        if total:
            yield text.strip(), total
        return
    target = 1
    if total:
        target = math.ceil(
            total / math.ceil(total / most_words)
        )  # of similar size, without a tiny remainder
    held: list[str] = []
    count = 0
    for unit, unit_words in _units(text, most_words, 0):
        # closing marks stay with the words before them, opening ones go with those after
        apart = unit_words or unicodedata.category(unit[0]) in ("Ps", "Pi")
        if count and apart and (count >= target or count + unit_words > most_words):
            yield "".join(held).strip(), count
            held, count = [], 0
        held.append(unit)
        count += unit_words
    if count:
        yield "".join(held).strip(), count


def _units(text: str, most: int, level: int) -> Iterator[tuple[str, int]]:
    """Yields slices that make up the text, each of at most `most` words: sentences, else lines,
    words, characters.
    """
    for piece in filter(None, _LEVELS[level](text)):
        count = len(words(piece)) if len(piece) < 1 << 20 else most + 1
        if (count <= most and len(piece) <= most * _LONGEST_WORD) or level + 1 == len(_LEVELS):
            yield piece, count
        else:
            yield from _units(piece, most, level + 1)


def sentences(text: str) -> Iterator[str]:
    """Yields slices that make up the text, each up to the end of a sentence or paragraph."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        full_stop = end.group("stop") == "." and "\n\n" not in end.group()
        if not full_stop or _ends_sentence(text, start, end):
            yield text[start : end.end()]
            start = end.end()
    yield text[start:]


def _ends_sentence(text: str, start: int, stop: re.Match[str]) -> bool:
    """Whether a full stop ends a sentence: not an abbreviation or an initial, and no small letter
    follows.
    """
    before = text[max(start, stop.start() - 12) : stop.start()].split()
    last = before[-1].lstrip("(\"'[").casefold() if before else ""
    return not (
        last in _ABBREVIATIONS
        or (len(last) == 1 and last.isalpha())
        or text[stop.end() : stop.end() + 1].islower()
    )


def _cut_after(pattern: re.Pattern[str]) -> Callable[[str], Iterator[str]]:
    def cut(text: str) -> Iterator[str]:
        start = 0
        for match in pattern.finditer(text):
            yield text[start : match.end()]
            start = match.end()
        yield text[start:]

    return cut


def _characters(text: str) -> Iterator[str]:
    """Yields the smallest slices that can be separated without changing a word, unless absurdly
    long.
    """
    start = 0
    for place in range(1, len(text)):
        if place - start >= _LONGEST_WORD or _separable(text[place - 1], text[place]):
            yield text[start:place]
            start = place
    yield text[start:]


@functools.lru_cache(maxsize=1 << 16)
def _separable(left: str, right: str) -> bool:
    if unicodedata.category(right)[0] == "M":
        return (
            False  # a mark belongs to the character before it, and normalisation may reorder marks
        )
    return words(left + right) == words(left) + words(right)


_LEVELS = (sentences, _cut_after(_LINE_END), _cut_after(_SPACE), _characters)
