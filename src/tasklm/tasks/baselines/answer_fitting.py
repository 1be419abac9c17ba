"""A linear model of the answers to questions: a softmax over all answers of a text, by AdaGrad.

As in `tag_fitting`, each weight has its own rate. `heads/wide_answers.py` says how many points an
answer has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.compiling import compiled_when_called
from tasklm.corpus.words import count_words
from tasklm.tasks.answer_windows import answer_tokens, gold_answers
from tasklm.tasks.base import Floats
from tasklm.tasks.baselines.answer_features import AnswerFeatures, answer_rows
from tasklm.tasks.baselines.answer_words import read_passage
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.baselines.linear import Linear
from tasklm.tasks.baselines.wide import Wide, outputs_of
from tasklm.tasks.baselines.wide_fitting import FittedWide, Refit, folds_of
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.wide_answers import LONGEST, POINTS, answer_logs

EPOCHS, RATE = 2, 0.03
TINY = 1e-3  # errors that move no weight: those of most words
MOST_WORDS, FOLDS = 1_000_000, 3  # words that are read, and parts that are held out in turn
SCALES = np.geomspace(0.3, 1.5, 9)  # of which that with the likeliest answers of train is taken
SCALING = 500  # questions that choose it
NO_ANSWER, UNKNOWN = -1, -2  # in place of an answer's first word: it has none, or none in reach
Rows = NDArray[np.int64]


def fit_spans(train: Sequence[Example]) -> FittedWide | None:
    """The wide part of a span task; None where there is nothing to learn from."""
    size = sum(count_words(example.text) for example in train)
    places = np.array(evenly(range(len(train)), len(train) * MOST_WORDS // max(size, MOST_WORDS)))
    some = [train[place] for place in places]
    gold = gold_words(some)
    if not (gold[:, 0] >= 0).any():
        return None
    features, matrix = AnswerFeatures.fit(some)
    if not len(features.columns):
        return None
    counts = answer_rows(some)
    firsts = np.cumsum([0, *counts])

    def rows_of(examples: Rows) -> Rows:
        return np.concatenate([np.arange(firsts[one], firsts[one + 1]) for one in examples])

    def fitted_to(examples: Rows) -> Linear:
        return fit_answers(matrix, firsts, gold, examples)

    def decided(model: Linear, examples: Rows) -> Floats:
        return model.decisions({"answers": matrix[rows_of(examples)]})

    everything = np.arange(len(some))
    wide = Wide("answers", features, fitted_to(everything))
    decisions = np.split(decided(wide.linear, everything), firsts[1:-1])
    for held in _folds(some):
        fitted = fitted_to(np.setdiff1d(everything, held))
        ends = np.cumsum([counts[one] for one in held])
        for one, own in zip(held, np.split(decided(fitted, held), ends[:-1]), strict=True):
            decisions[one] = own
    wide = replace(wide, scale=_best_scale(decisions, gold))
    outputs = _of_all(wide, train, dict(zip(places.tolist(), decisions, strict=True)))
    return FittedWide(wide, outputs, Refit(places, fitted_to, decided))


def _of_all(wide: Wide, train: Sequence[Example], read: dict[int, Floats]) -> NDArray[np.float32]:
    """Outputs for all of train: as decided out of fold, or by the model where it has not read."""
    outside = [place for place in range(len(train)) if place not in read]
    others = [train[place] for place in outside]
    outputs = {place: outputs_of(wide.form, own, wide.scale, 0.0) for place, own in read.items()}
    if outside:
        ends = np.cumsum(answer_rows(others))
        outputs |= zip(outside, np.split(wide.outputs(others), ends[:-1]), strict=True)
    return np.concatenate([outputs[place] for place in range(len(train))])


def gold_words(examples: Sequence[Example]) -> Rows:
    """The first and the last word of the answer to each question, (examples, 2)."""
    gold = np.full((len(examples), 2), NO_ANSWER)
    for number, example in enumerate(examples):
        if example.label:
            text = example.texts[1]
            words = answer_tokens(gold_answers(example.label, text), read_passage(text).bounds)
            if words is None or words[1] - words[0] >= LONGEST:
                words = UNKNOWN, UNKNOWN
            gold[number] = words
    return gold


def fit_answers(
    matrix: Any, firsts: Rows, gold: Rows, examples: Rows, epochs: int = EPOCHS
) -> Linear:
    """The model of some examples, whose rows of the matrix begin at `firsts`."""
    weights = np.zeros((matrix.shape[1], POINTS))
    squares = np.ones_like(weights)
    draw = np.random.default_rng(0)
    known = examples[gold[examples, 0] != UNKNOWN]
    for _ in range(epochs):
        order = draw.permutation(known)
        _pass(matrix.indptr, matrix.indices, firsts, gold, weights, squares, order, LONGEST)
    return Linear(AnswerFeatures.blocks, weights, np.zeros(POINTS))


def _folds(examples: Sequence[Example]) -> list[Rows]:
    """Examples in parts by chance; questions on one text stay together where there are several."""
    number: dict[str, int] = {}
    for example in examples:
        number.setdefault(example.texts[1], len(number))
    if len(number) < 2:
        return folds_of(len(examples), FOLDS)
    of = np.array([number[example.texts[1]] for example in examples])
    return [np.flatnonzero(np.isin(of, held)) for held in folds_of(len(number), FOLDS)]


def _best_scale(decisions: Sequence[Floats], gold: Rows) -> float:
    """The factor of decisions that makes the answers of train likeliest."""
    some = evenly(np.flatnonzero(gold[:, 0] != UNKNOWN).tolist(), SCALING)

    def likelihood(scale: float) -> float:
        total = 0.0
        for one in some:
            none, logs = answer_logs(scale * decisions[one])
            first, last = gold[one]
            total += none if first < 0 else logs[first, last - first]
        return total

    return float(max(SCALES, key=likelihood))


@compiled_when_called
def _pass(
    ends: Any,
    columns: Any,
    firsts: Rows,
    gold: Rows,
    weights: Any,
    squares: Any,
    order: Rows,
    longest: int,
) -> None:
    """Goes over examples in an order, and moves the weights of each one's features. Plain loops:
    whole arrays would take far longer to compile.
    """
    for example in order:
        top, own = firsts[example], 1 + longest  # rows: of the example, and there of its words
        rows = firsts[example + 1] - top
        words = rows - own
        points, errors = np.zeros((rows, 3)), np.zeros((rows + 1, 3))
        for row in range(rows):
            for entry in range(ends[top + row], ends[top + row + 1]):
                for sort in range(3):
                    points[row, sort] += weights[columns[entry], sort]
        odds, highest = np.zeros((words, longest)), points[0, 0]
        for first in range(words):
            inside = 0.0
            for more in range(min(longest, words - first)):
                last = own + first + more
                inside += points[last, 2]
                whole = points[own + first, 0] + points[last, 1] + inside + points[1 + more, 0]
                odds[first, more] = whole
                highest = max(highest, whole)
        none = total = math.exp(points[0, 0] - highest)
        for first in range(words):
            for more in range(min(longest, words - first)):
                odds[first, more] = math.exp(odds[first, more] - highest)
                total += odds[first, more]
        begin, end = gold[example]
        if begin >= 0:
            odds[begin, end - begin] -= total
        errors[0, 0] = none / total - (begin < 0)
        for first in range(words):
            for more in range(min(longest, words - first)):
                share = odds[first, more] / total
                errors[1 + more, 0] += share
                errors[own + first, 0] += share
                errors[own + first + more, 1] += share
                errors[own + first, 2] += share  # as differences: all words of the answer
                errors[own + first + more + 1, 2] -= share
        for row in range(rows):
            if row > own:
                errors[row, 2] += errors[row - 1, 2]
            if max(abs(errors[row, 0]), abs(errors[row, 1]), abs(errors[row, 2])) < TINY:
                continue
            for entry in range(ends[top + row], ends[top + row + 1]):
                column = columns[entry]
                for sort in range(3):
                    squares[column, sort] += errors[row, sort] ** 2
                    step = errors[row, sort] / math.sqrt(squares[column, sort])
                    weights[column, sort] -= RATE * step
