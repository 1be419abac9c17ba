"""Windows of a text that may contain the answer to a question, and the targets in them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import NONE, Unit
from tasklm.tasks.readers.squad import MISSING, Gold, first_place, place_of

# (places, 2): the characters that each place stands for, in the text as given
Spans = NDArray[np.int32]


@dataclass
class Window(Unit):
    """A unit that knows which characters of the text its places stand for; [CLS] has none."""

    spans: Spans = field(default_factory=lambda: np.zeros((0, 2), np.int32))


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
