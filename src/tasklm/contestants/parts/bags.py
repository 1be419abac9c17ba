"""Units as bags of tokens: one text, two texts, or a word with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasklm.contestants.parts.encoded import Encoded, Outputs, reads_words
from tasklm.tasks.base import Task, Tokeniser, Unit
from tasklm.tasks.examples import Example

UNK, CLS, SEP = 0, 1, 2  # tokens that stand for no word
FIRST = 3  # token of words
LONGEST = 1 << 20  # tokens of a row: no text is cut
Bags = tuple[list[int], ...]  # one, two for a pair, three for a word: before it, itself, after it
OF_WORDS = 3
PARTS = {1: 1, 2: 4, 3: 3}  # bags → vectors side by side: a pair also has difference and product


class Words:
    """The tokens that a task's encoding asks for, but for those of words."""

    cls, sep, unk = CLS, SEP, UNK

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Not needed by tasks whose answers are read from single places."""
        raise NotImplementedError


def encoded(task: Task, examples: Sequence[Example], tokeniser: Tokeniser) -> Encoded:
    """Examples as their task reads them, uncut."""
    return Encoded.of(task, examples, tokeniser, LONGEST)


def count_bags(task: Task, units: Sequence[Unit]) -> int:
    """How many bags each place of a task has."""
    if reads_words(task):
        return OF_WORDS
    return 1 + any(unit.second for unit in units)


def bags_in(parts: int) -> int:
    """The number of bags that so many vectors side by side are made of."""
    return {parts: bags for bags, parts in PARTS.items()}[parts]


def bags_of(units: Sequence[Unit], count: int) -> list[Bags]:
    """The bags of all places of some units."""
    bags: list[Bags] = []
    for unit in units:
        if count == OF_WORDS:
            bags += _of_words(unit)
        else:
            bags.append(_of_texts(unit, count))
    return bags


def _of_texts(unit: Unit, count: int) -> Bags:
    """The tokens of one text, or of two."""
    if count == 1:
        return (_content(unit.tokens),)
    border = unit.second or len(unit.tokens)
    return _content(unit.tokens[:border]), _content(unit.tokens[border:])


def _of_words(unit: Unit) -> list[Bags]:
    """The tokens of each word, those of the word before and those of the word after."""
    ends = [*unit.places[1:], len(unit.tokens)]
    words = [_content(unit.tokens[begin:end]) for begin, end in zip(unit.places, ends, strict=True)]
    around = [[], *words, []]
    return list(zip(around, around[1:], around[2:], strict=False))


def _content(tokens: Sequence[int]) -> list[int]:
    return [token for token in tokens if token not in (CLS, SEP)]


def side_by_side(parts: Sequence[Outputs]) -> Outputs:
    """The vectors of bags as one: of two texts with their difference and product.

    All get the same length, at which a number in them is about 1.
    """
    scaled = []
    for part in parts:
        lengths = np.maximum(1e-9, np.linalg.norm(part, axis=1, keepdims=True))
        scaled.append(part / lengths * part.shape[1] ** 0.5)
    if len(scaled) == 2:
        one, other = scaled
        scaled += [np.abs(one - other), one * other]
    return np.concatenate(scaled, axis=1, dtype=np.float32)
