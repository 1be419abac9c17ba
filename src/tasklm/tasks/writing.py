"""Kinds whose answers are texts that a decoder writes, one token after the other.

Nothing here needs PyTorch: the units of such a kind, how its texts are searched for, and what a
search returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RecipeError
from tasklm.tasks.base import Elsewhere, Floats, Task, Tokeniser, Unit

MOST_BEAM = 64
SPARE = 16  # tokens that a text may have beyond its share of the source's
FEWEST = -1e9  # the score of a candidate that there is not
SCORE, ENDED, FIRST = 0, 1, 2  # columns of what a search returns; tokens begin at the last


# what an export of such a task is to other programs
AS_GRAPHS = Elsewhere(
    "text2text-generation",
    "",
    (
        "`model.onnx` turns token ids into the memory that the decoder attends to. "
        "`decoder.onnx` takes the last tokens (texts, hypotheses), that memory and the "
        "state of the previous steps, and returns the log-probabilities of the next "
        "tokens. A text begins with the first token of its source, [CLS], and ends "
        "with [SEP]. Choosing tokens is up to the search: `tasklm predict` and `tasklm "
        "serve` use beam search."
    ),
)


class Writer(Protocol):
    """A vocabulary that also turns tokens into text."""

    sep: int
    specials: list[int]

    def __len__(self) -> int: ...

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of some tokens."""
        ...


@dataclass(frozen=True)
class Search:
    """How texts are searched for: with a beam, and scores divided by length^penalty."""

    beam: int = 5
    penalty: float = 1.0
    longest: int = 256  # tokens of a text, at most …
    stretch: float = 2.0  # … and for each token of its source, beside a few
    best: int = 1  # candidates to return

    def limits(self, sources: NDArray[np.int64]) -> NDArray[np.int64]:
        """The most tokens of the texts for sources of so many tokens."""
        most = (SPARE + self.stretch * sources).astype(np.int64)
        return np.asarray(np.clip(most, 1, self.longest), np.int64)


@dataclass(frozen=True)
class Written:
    """A candidate: its tokens, without the one that ends a text."""

    tokens: tuple[int, ...]
    score: float  # its logarithmic probability by length^penalty
    ended: bool  # whether the decoder ended it; otherwise it is cut


@dataclass
class TextUnit(Unit):
    """A source, with the vocabulary in which its text is written.

    Targets, if any, are the tokens of that text, and have places of their own.
    """

    vocabulary: Any = None
    unread: int = 0  # tokens of the source beyond a row
    unlearnt: int = 0  # tokens of the target beyond a row


class Writes(ABC):
    """A kind whose answers are written by a decoder."""

    search: Search

    @abstractmethod
    def searching(self, search: Search) -> Task:
        """The same task with another search."""


def writes(task: Task) -> bool:
    """Whether a task's answers are written by a decoder."""
    return isinstance(task, Writes)


def search_of(task: Task) -> Search:
    """How the texts of a task that writes are searched for."""
    assert isinstance(task, Writes)
    return task.search


def with_search(task: Task, beam: int | None, best: int) -> Task:
    """A task that writes, with another beam, which is wide enough for so many candidates.

    Raises RecipeError for any other task, or for numbers out of bounds.
    """
    if not isinstance(task, Writes):
        problem = f"tasks of kind {task.kind} do not write texts"
        raise RecipeError([f"--beam and --n-best: {problem}; leave them out"])
    wide = max(best, task.search.beam if beam is None else beam)
    for name, value in (("--n-best", best), ("--beam", wide if beam is None else beam)):
        if not 1 <= value <= MOST_BEAM:
            raise RecipeError([f"{name} {value}: give a number from 1 to {MOST_BEAM}"])
    return task.searching(replace(task.search, beam=wide, best=best))


def greedy(task: Task) -> Task:
    """A task by which training steps are judged: one that writes does so without a beam, which is
    several times as fast; any other itself.
    """
    if not isinstance(task, Writes):
        return task
    return task.searching(replace(task.search, beam=1, best=1))


def candidates(outputs: Floats, end: int) -> list[Written]:
    """The candidates among the outputs of a search for one example (beam, 2 + tokens), best first.

    `end` is the token that ends a text.
    """
    best_ones = []
    for row in outputs:
        if row[SCORE] <= FEWEST:
            continue
        tokens = [int(token) for token in row[FIRST:] if token >= 0]
        if tokens and tokens[-1] == end:
            tokens.pop()
        best_ones.append(Written(tuple(tokens), float(row[SCORE]), bool(row[ENDED])))
    return best_ones


def text_rows(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]] | None,
    vocabulary: Tokeniser,
    length: int,
) -> list[TextUnit]:
    """A row [CLS] source [SEP] for each source, and as its targets: target [SEP].

    Of a target that is longer than a row only the beginning is learnt, without an end.
    """
    units = []
    for number, source in enumerate(sources):
        row = [vocabulary.cls, *source[: length - 2], vocabulary.sep]
        unit = TextUnit(row, [0], None, example=number, vocabulary=vocabulary)
        unit.unread = max(0, len(source) - (length - 2))
        if targets is not None:
            wanted = [*targets[number], vocabulary.sep]
            unit.targets = np.array(wanted[:length], np.int64)
            unit.unlearnt = max(0, len(wanted) - length)
        units.append(unit)
    return units
