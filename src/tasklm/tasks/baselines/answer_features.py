"""What a linear model sees of the answers that a text may hold: rows of hashed features.

An example has a row for "no answer", one for each length of an answer, and one for each word. A
word is seen by itself, with its neighbours, with what the question asks for, and by how near the
words of the question are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tasklm.storage.files import write_bytes, write_text
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.answer_windows import Window
from tasklm.tasks.base import Floats, Unit
from tasklm.tasks.baselines.answer_overlap import FAR, TELLING, Batch, Overlap, overlap_of
from tasklm.tasks.baselines.answer_words import (
    Codes,
    Ints,
    QuestionReader,
    asking_words,
    read_passage,
    stem_weights,
)
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.wide_answers import BEFORE, LONGEST
from tasklm.tasks.saved import of_format

FORMAT = 1
BITS = 22  # of a hashed feature
MOST_FEATURES = 250_000
RARE = 3  # rows that a feature must occur in
AT_ONCE = 500  # examples whose features are hashed together
_FIRST, _LAST = np.uint64(1), np.uint64(2)  # codes before and after a sentence
_DISTANCES = np.array([1, 2, 3, 4, 5, 7, 10, 16])  # words from which on bins begin
_NEAR = 4  # places in the question that are told apart, before and after the asking word
_MULTIPLIERS = [
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xBF58476D1CE4E5B9)
]
Pair = tuple[Any, Any]


class AnswerFeatures:
    """Features of answers; `columns` are the hashed ones that train has not rarely."""

    blocks = ("answers",)

    def __init__(
        self, weights: dict[str, float], asking: Sequence[str], columns: NDArray[np.int32]
    ) -> None:
        self.weights, self.asking, self.columns = weights, list(asking), columns
        self._questions = QuestionReader(weights, self.asking)
        self._column = np.full(1 << BITS, -1, np.int32)
        self._column[columns] = np.arange(len(columns), dtype=np.int32)

    @classmethod
    def fit(cls, train: Sequence[Example]) -> tuple[AnswerFeatures, Any]:
        """The features of training examples and their matrix: the weights of words, what is asked
        for, and the hashed features that are not rare.
        """
        weights, asking = stem_weights(train), asking_words(train)
        bare = cls(weights, asking, np.zeros(0, np.int32))
        counts = np.zeros(1 << BITS, np.int64)
        hashed = list(bare._hashed(train))
        for *blocks, _ in hashed:
            for block in blocks:
                counts += np.bincount(block.ravel(), minlength=1 << BITS)
        common = np.flatnonzero(counts >= RARE)
        most = np.argsort(-counts[common], kind="stable")[:MOST_FEATURES]
        columns = np.sort(common[most]).astype(np.int32)
        features = cls(weights, asking, columns)
        return features, features._stacked(hashed)

    def parts(self, examples: Sequence[Example]) -> dict[str, Any]:
        """One matrix, with the rows of all examples."""
        return {"answers": self._stacked(self._hashed(examples))}

    def _stacked(self, hashed: Iterable[Sequence[Ints]]) -> Any:
        from scipy.sparse import csr_matrix, vstack

        empty = csr_matrix((0, len(self.columns)), dtype=np.float32)
        return vstack([empty, *map(self._matrix, hashed)], format="csr")

    def units(self, examples: Sequence[Example]) -> list[Unit]:
        """A window without tokens for each example, whose places are words."""
        none = np.zeros((1, 2), np.int32)
        units: list[Unit] = []
        for number, example in enumerate(examples):
            passage = read_passage(example.texts[1])
            spans = np.concatenate([none, passage.bounds])
            places = list(range(len(spans)))
            window = Window([], places, None, 0, number, spans=spans, text=passage.text)
            window.words = passage.bounds
            units.append(window)
        return units

    def _hashed(self, examples: Sequence[Example]) -> Iterable[tuple[Ints, ...]]:
        """Yields the hashed features of some examples at a time, of the three sorts of rows, and
        where the words of each example begin.
        """
        for start in range(0, len(examples), AT_ONCE):
            some = examples[start : start + AT_ONCE]
            batch = Batch.of_examples(
                [read_passage(example.texts[1]) for example in some],
                [self._questions.read(example.texts[0]) for example in some],
            )
            yield _features(batch)

    def _matrix(self, blocks: Sequence[Ints]) -> Any:
        from scipy.sparse import csr_matrix

        none, lengths, words, begins = blocks
        rows = BEFORE * len(none) + len(words)
        firsts = begins[:-1] + BEFORE * np.arange(len(none))
        of = np.repeat(np.arange(len(none)), np.diff(begins))
        places = [
            firsts,
            (firsts[:, None] + 1 + np.arange(LONGEST)).ravel(),
            np.arange(len(words)) + BEFORE * (1 + of),
        ]
        row = np.concatenate(
            [np.repeat(own, block.shape[1]) for own, block in zip(places, blocks, strict=False)]
        )
        column = np.concatenate([self._column[block.ravel()] for block in (none, lengths, words)])
        there = column >= 0
        shape = (rows, len(self.columns))
        ones = np.ones(there.sum(), np.float32)
        matrix = csr_matrix((ones, (row[there], column[there])), shape)
        matrix.data[:] = 1.0  # where two features of a row have one hash
        return matrix

    def save(self, folder: Path) -> None:
        """Writes answers.json and answers.safetensors."""
        about = {"format": FORMAT, "asking": self.asking, "weights": self.weights}
        write_text(folder / "answers.json", json.dumps(about) + "\n")
        columns = safetensors.numpy.save({"columns": self.columns})
        write_bytes(folder / "answers.safetensors", columns)

    @classmethod
    def load(cls, folder: Path) -> AnswerFeatures:
        """The features that `save` wrote; raises ValueError where they are none."""
        about = of_format(folder / "answers.json", FORMAT)
        weights = {str(stem): float(weight) for stem, weight in about["weights"].items()}
        arrays = safetensors.numpy.load_file(require_regular(folder / "answers.safetensors"))
        columns = arrays["columns"]
        if columns.dtype != np.int32 or columns.ndim != 1:
            raise ValueError("answers.safetensors does not hold the numbers of features")
        bounded = np.concatenate([[-1], columns.astype(np.int64), [1 << BITS]])
        if not (np.diff(bounded) > 0).all() or not np.isfinite(list(weights.values())).all():
            raise ValueError("the features of answers are not in order, or not finite")
        return cls(weights, [str(word) for word in about["asking"]], columns)


def answer_rows(examples: Sequence[Example]) -> list[int]:
    """How many rows each example has."""
    return [BEFORE + len(read_passage(example.texts[1]).codes) for example in examples]


def _features(batch: Batch) -> tuple[Ints, Ints, Ints, Ints]:
    """Hashed features of "no answer", of lengths and of words, and where examples begin."""
    overlap = overlap_of(batch)
    count = len(batch.questions)
    asks = np.array([one.asks for one in batch.questions], np.uint64).reshape(count, -1)
    each = list(asks.T)
    sizes = np.array([one.size for one in batch.questions], np.int64)
    best, second, covered = (
        _tenths(own) for own in (overlap.best, overlap.second, overlap.covered)
    )
    zero = np.zeros(count, np.int64)
    none: list[Pair] = [(one, 0) for one in (zero, best, second, covered, sizes, *each)]
    none.append((best, each[0]))
    length = np.tile(np.arange(LONGEST), count)
    lengths = [(length, 0), *((length, np.repeat(one, LONGEST)) for one in each)]
    words = _of_words(batch, overlap, [one[batch.of] for one in each])
    return _columns(none, 0), _columns(lengths, 100), _columns(words, 200), batch.begins


def _of_words(batch: Batch, overlap: Overlap, asks: Sequence[Codes]) -> list[Pair]:
    """Pairs of numbers, each of which is a feature of a word."""
    word, _, ending, shape = batch.codes.T
    before, before_shape = (_beside(own, batch.sentences, 1) for own in (word, shape))
    after, after_shape = (_beside(own, batch.sentences, -1) for own in (word, shape))
    own = np.where(overlap.weights > 0, 1, 0) + (overlap.weights > TELLING)
    near = (
        _beside(own.astype(np.uint64) + _LAST, batch.sentences, 1),
        _beside(own.astype(np.uint64) + _LAST, batch.sentences, -1),
    )
    rank = np.minimum(overlap.ranks, 4)
    left, right = (
        np.searchsorted(_DISTANCES, far, "right") for far in (overlap.left, overlap.right)
    )
    to_left, to_right = (_place(one) for one in (overlap.left_places, overlap.right_places))
    five, next_five, ten = (np.minimum(12, one.astype(np.int64)) for one in overlap.around)
    sentence = batch.sentences - batch.sentences[batch.begins[batch.of]]
    alone: list[Pair] = [(word, 0), (before, 0), (after, 0), (shape, 0), (ending, 0)]
    beside = [
        (before_shape, shape),
        (shape, after_shape),
        (before, word),
        (word, after),
        (_beside(before, batch.sentences, 1), before),
    ]
    shared = [
        (rank, own),
        (np.minimum(9, (2 * overlap.gaps).astype(np.int64)), own),
        ((8 * overlap.shares).astype(np.int64), rank),
        (left, right),
        (five, next_five),
        (ten, rank),
        (16 * to_left + left, 0),
        (16 * to_right + right, 0),
        (3 * near[0] + near[1], own),
        (np.minimum(sentence, 5), rank),
    ]
    with_shape = [(one, shape) for one in (left, right, *near, own, rank)]
    first = [(one, asks[0]) for one in (left, right, to_left, to_right)]
    with_asks: list[Pair] = []
    for code in asks:
        with_asks += [(code, one) for one in (shape, word, ending, before)]
    return [*alone, *beside, *shared, *with_shape, *first, *with_asks]


def _columns(pairs: Sequence[Pair], first: int) -> Any:
    """Hashes each pair of numbers with the number of its feature, (rows, features)."""
    hashed = [_mixed(first + number, *pair) for number, pair in enumerate(pairs)]
    return np.stack(hashed, axis=1)


def _mixed(number: int, one: Any, other: Any) -> NDArray[np.int32]:
    """A well spread hash of a feature's number and two others, of BITS bits."""
    golden, second, third = _MULTIPLIERS
    with np.errstate(over="ignore"):
        value = np.asarray(one).astype(np.uint64) * golden
        value ^= np.asarray(other).astype(np.uint64) + np.uint64(number) * second
        value = (value ^ (value >> np.uint64(29))) * third
        value ^= value >> np.uint64(32)
    return (value & np.uint64((1 << BITS) - 1)).astype(np.int32)


def _beside(values: Codes, sentences: Ints, step: int) -> Codes:
    """The values of the words before (1) or after (-1), within the sentence."""
    moved, theirs = np.roll(values, step), np.roll(sentences, step)
    missing = _FIRST if step > 0 else _LAST
    moved = np.where(theirs == sentences, moved, missing)
    if len(moved):
        moved[0 if step > 0 else -1] = missing
    return moved


def _tenths(shares: Floats) -> Ints:
    return np.asarray(10 * shares, np.int64)


def _place(places: Ints) -> Ints:
    """Places in the question as numbers from 1 on; 0 where there is none."""
    near = np.clip(places, -_NEAR, _NEAR) + _NEAR + 1
    return np.where(places == FAR, 0, near)
