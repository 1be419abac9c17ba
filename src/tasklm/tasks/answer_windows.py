"""Windows of a text that may contain the answer to a question, and the targets in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import NONE, Unit
from tasklm.tasks.heads.answer_search import OUTPUTS
from tasklm.tasks.heads.soft_answers import window_lesson
from tasklm.tasks.heads.wide_answers import BEFORE, wide_outputs
from tasklm.tasks.readers.squad import MISSING, Gold, first_place, place_of
from tasklm.tasks.readers.word_rows import split_words

# (places, 2): the characters that each place stands for, in the text as given
Spans = NDArray[np.int32]


@dataclass
class Window(Unit):
    """A unit that knows which characters of the text its places stand for; [CLS] has none.

    Its `wide` is what a wide part says of the words of the whole text, which `added` turns into
    outputs for the places: these are many, and most of them 0.
    """

    spans: Spans = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    text: str = ""
    words: Spans = field(default_factory=lambda: np.zeros((0, 2), np.int32))  # of the text

    @property
    def wide_shape(self) -> tuple[int, int]:
        """The shape of what the wide part adds; (0, 0) where there is none."""
        if self.wide is None:
            return 0, 0
        return len(self.places), OUTPUTS

    def added(self) -> NDArray[np.float32] | None:
        """What the wide part adds to the head's outputs, (places, outputs)."""
        if self.wide is None:
            return None
        return wide_outputs(np.asarray(self.wide, np.float64), self.words, self.spans)

    @classmethod
    def share_out(cls, units: Sequence[Unit], wide: NDArray[Any]) -> None:
        """Gives each window what a wide part says of its example's text."""
        for unit, begin, end in _rows_of_texts(units, BEFORE):
            unit.wide = wide[begin:end]

    @property
    def rows_of_text(self) -> int:
        """What teachers say of the text: a row for "no answer", and one for each word."""
        return 1 + len(split_words(self.text))

    @classmethod
    def share_lessons(cls, units: Sequence[Unit], taught: NDArray[Any]) -> None:
        """Gives each window what teachers say of the part of the text that it has."""
        for unit, begin, end in _rows_of_texts(units, 1):
            rows = np.asarray(taught[begin:end], np.float64)
            unit.taught = window_lesson(rows, unit.words, unit.spans)


def _rows_of_texts(units: Sequence[Unit], before_words: int) -> Iterator[tuple[Window, int, int]]:
    """Windows, whose words are then known, and which rows are of their example: so many, and one
    for each word.
    """
    begin = end = 0
    before: Window | None = None
    for unit in units:
        assert isinstance(unit, Window)
        if before is not None and before.text == unit.text:
            unit.words = before.words
        elif not len(unit.words):
            unit.words = np.array(split_words(unit.text), np.int32).reshape(-1, 2)
        if before is None or before.example != unit.example:
            begin, end = end, end + before_words + len(unit.words)
        yield unit, begin, end
        before = unit


def window_starts(tokens: int, room: int, shared: int) -> list[int]:
    """The starts of the windows of `room` tokens that cover a text, each overlapping the previous
    by `shared` tokens.
    """
    starts = [0]
    while starts[-1] + room < tokens:
        starts.append(starts[-1] + room - shared)
    return starts


def gold_answers(label: Gold | str, context: str) -> Gold:
    """Gold answers as they are, and a predicted one, a text, at its first occurrence."""
    if isinstance(label, str):
        return [(label, place_of(label, MISSING, context))]
    return label


def answer_tokens(gold: Gold, spans: Spans) -> tuple[int, int] | None:
    """The first and the last token of an answer; None if it is not in its text."""
    place = first_place(gold)
    if place is None:
        return None
    touched = np.flatnonzero(
        (spans[:, 1] > np.maximum(spans[:, 0], place[0])) & (spans[:, 0] < place[1])
    )
    if not len(touched):
        return None
    return int(touched[0]), int(touched[-1])


def window_targets(
    answer: tuple[int, int] | None, answerable: bool, begin: int, size: int
) -> NDArray[np.int8]:
    """The (places, 2) targets of start and end for the window of `size` tokens from
    token `begin`.
    """
    if answerable and answer is None:
        return np.full((size + 1, 2), NONE, np.int8)
    marks = np.zeros((size + 1, 2), np.int8)
    first = last = 0
    if answer is not None and begin <= answer[0] and answer[1] < begin + size:
        first, last = answer[0] - begin + 1, answer[1] - begin + 1
    marks[first, 0] = marks[last, 1] = 1
    return marks


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """The characters without white space around them."""
    piece = text[begin:end]
    return begin + len(piece) - len(piece.lstrip()), begin + len(piece.rstrip())
