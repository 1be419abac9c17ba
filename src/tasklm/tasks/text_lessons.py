"""What teachers say of answers that are places in a text: in words, for the student's tokens may be
others than theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tasklm.tasks.answer_windows import Window
from tasklm.tasks.base import Floats, Label, Task, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.answer_search import Kept
from tasklm.tasks.heads.soft_answers import LIKELIEST, WIDTH, soft_answer_loss
from tasklm.tasks.heads.soft_trees import mean_arcs, soft_arc_loss, soft_arcs, width_of
from tasklm.tasks.heads.trees import best_tree
from tasklm.tasks.readers.word_rows import split_words

if TYPE_CHECKING:
    from torch import Tensor

NO_CLASSES = "answers are places in a text, not classes"
NO_ANSWER = -1.0  # in place of a first word


class TextLessons(Protocol):
    """A kind of task whose teachers speak of the words of an example."""

    @property
    def lesson_width(self) -> int:
        """How many numbers a row of a lesson has."""
        ...

    def text_lesson(
        self,
        example: Example,
        units: Sequence[Unit],
        of_units: Sequence[Any],
        columns: Sequence[int],
    ) -> Floats:
        """What a teacher says of an example, from what `lesson` returned for its units.

        `columns`: where the teacher has the student's labels.
        """
        ...

    def mean_lesson(self, lessons: Sequence[Floats]) -> Floats:
        """What several teachers say of an example on average."""
        ...

    def lesson_rows(self, example: Example, lesson: Floats) -> Floats:
        """A lesson as rows that a unit shares out to its places."""
        ...

    def lesson_label(self, example: Example, lesson: Floats) -> Label:
        """The label that a lesson gives to an example."""
        ...


def text_lessons_of(task: Task) -> TextLessons | None:
    """The task, if its lessons are of words; None if they are logits of its answers."""
    return task if isinstance(task, (TaughtSpans, TaughtTrees)) else None


class TaughtSpans:
    """Teachers of answers in a text: the likeliest of them with their probabilities.

    A lesson has a row for each answer: its first word and its last one, and the probability; of "no
    answer" the first word is NO_ANSWER.
    """

    unsmoothed = incomparable = NO_CLASSES
    lesson_width = WIDTH

    keep: Callable[[Floats], Kept]

    def lesson(self, outputs: Floats) -> Kept:
        """The score of "no answer" and the best answers of a window."""
        return self.keep(outputs)

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropies of the start, and of the end given each of the likeliest starts."""
        return soft_answer_loss(outputs, taught, targets)

    def text_lesson(
        self,
        example: Example,
        units: Sequence[Unit],
        of_units: Sequence[Kept],
        columns: Sequence[int],
    ) -> Floats:
        """The best answers of all windows, as probabilities that sum to 1.

        As in an answer, the least score of "no answer" counts, and the best of each other one.
        """
        words = np.array(split_words(example.texts[1]), np.int64).reshape(-1, 2)
        logs: dict[tuple[float, float], float] = {}
        none = min(score for score, _ in of_units)
        for unit, (_, candidates) in zip(units, of_units, strict=True):
            assert isinstance(unit, Window)
            for first, last, log in candidates:
                begin, end = unit.spans[first, 0], unit.spans[last, 1]
                inside = np.flatnonzero((words[:, 1] > begin) & (words[:, 0] < end))
                if len(inside):
                    key = float(inside[0]), float(inside[-1])
                    logs[key] = max(log, logs.get(key, log))
        rows = [(NO_ANSWER, NO_ANSWER, none), *((*key, log) for key, log in logs.items())]
        lesson = np.array(rows, np.float64)
        lesson[:, 2] = np.exp(lesson[:, 2] - lesson[:, 2].max())
        lesson[:, 2] /= lesson[:, 2].sum()
        return lesson

    def mean_lesson(self, lessons: Sequence[Floats]) -> Floats:
        """All answers of all teachers, with their mean probability."""
        shares: dict[tuple[float, float], float] = {}
        for lesson in lessons:
            for first, last, share in lesson.tolist():
                shares[first, last] = shares.get((first, last), 0.0) + share / len(lessons)
        return np.array([(*answer, share) for answer, share in shares.items()], np.float64)

    def lesson_rows(self, example: Example, lesson: Floats) -> Floats:
        """A row for "no answer" and one for each word: the probability that an answer begins there;
        the same for each of the likeliest starts alone; and the probabilities of their ends.
        """
        rows = np.zeros((1 + len(split_words(example.texts[1])), WIDTH))
        firsts, lasts = 1 + lesson[:, 0].astype(np.int64), 1 + lesson[:, 1].astype(np.int64)
        np.add.at(rows[:, 0], firsts, lesson[:, 2])
        starts = 1 + np.argsort(-rows[1:, 0], kind="stable")[:LIKELIEST]
        for number, start in enumerate(starts.tolist(), 1):
            own = firsts == start
            share = rows[start, 0]
            if share > 0:
                rows[start, number] = share
                np.add.at(rows[:, LIKELIEST + number], lasts[own], lesson[own, 2] / share)
        return rows

    def lesson_label(self, example: Example, lesson: Floats) -> str:
        """The likeliest answer, "" for none."""
        first, last = lesson[int(lesson[:, 2].argmax()), :2].astype(np.int64).tolist()
        if first < 0:
            return ""
        words = split_words(example.texts[1])
        return example.texts[1][words[first][0] : words[last][1]]


class TaughtTrees:
    """Teachers of dependency trees: of each word its likeliest heads, and their relations."""

    unsmoothed = incomparable = NO_CLASSES
    labels: list[str]
    usual: str

    @property
    def lesson_width(self) -> int:
        """Numbers for each of the likeliest heads: which, how likely, and those of relations."""
        return width_of(len(self.labels))

    def lesson(self, outputs: Floats) -> Floats:
        """The likeliest heads of each word, with relations."""
        return soft_arcs(np.asarray(outputs, np.float64))

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of heads, and of relations at the heads that teachers name."""
        return soft_arc_loss(outputs, taught, targets)

    def text_lesson(
        self,
        example: Example,
        units: Sequence[Unit],
        of_units: Sequence[Floats],
        columns: Sequence[int],
    ) -> Floats:
        """A row for each word; 0 for words that the teacher did not read."""
        (unit,), (arcs,) = units, of_units
        assert isinstance(unit, SentenceUnit)
        rows = np.zeros((unit.words, arcs.shape[1]))
        of_heads = arcs.reshape(len(arcs), -1, 2 + len(columns))
        order = [0, 1, *(2 + column for column in columns)]
        rows[: len(arcs)] = of_heads[:, :, order].reshape(arcs.shape)
        return rows

    def mean_lesson(self, lessons: Sequence[Floats]) -> Floats:
        """The likeliest heads of all teachers together."""
        return mean_arcs(lessons, len(self.labels))

    def lesson_rows(self, example: Example, lesson: Floats) -> Floats:
        """The rows themselves."""
        return lesson

    def lesson_label(self, example: Example, lesson: Floats) -> list[tuple[int, str]]:
        """The likeliest tree; words that no teacher read are attached as in an answer."""
        read = int((lesson[:, 1] > 0).sum())
        of_heads = lesson[:read].reshape(read, -1, 2 + len(self.labels))
        scores = np.full((1 + read, 1 + read), 1e-12)
        relations = np.zeros((1 + read, 1 + read, len(self.labels)))
        words = np.arange(1, 1 + read)[:, None]
        heads = of_heads[:, :, 0].astype(np.int64)
        np.add.at(scores, (words, heads), of_heads[:, :, 1])
        np.add.at(relations, (words, heads), of_heads[:, :, 1:2] * of_heads[:, :, 2:])
        tree = best_tree(np.log(scores))
        best = relations[np.arange(1, 1 + read), tree].argmax(-1)
        arcs = [(int(head), self.labels[name]) for head, name in zip(tree, best, strict=True)]
        root = tree.tolist().index(0) + 1
        return arcs + [(root, self.usual)] * (len(lesson) - read)


@dataclass
class SentenceUnit(Unit):
    """A unit that knows how many words its sentence has, read or not."""

    words: int = 0

    @property
    def rows_of_text(self) -> int:
        """A row for each word."""
        return self.words

    @classmethod
    def share_lessons(cls, units: Sequence[Unit], taught: Any) -> None:
        """Gives each sentence the rows of its words that fit; a head beyond them is left out."""
        begin = 0
        for unit in units:
            assert isinstance(unit, SentenceUnit)
            rows = np.zeros((len(unit.places), taught.shape[1]), np.float32)
            rows[1:] = taught[begin : begin + len(unit.places) - 1]
            unit.taught, begin = rows, begin + unit.words
        assert begin == len(taught)
