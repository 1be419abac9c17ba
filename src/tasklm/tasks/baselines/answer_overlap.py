"""What the words of texts have to do with the questions on them: a number or more for each word.

All words of a batch of examples are looked at together, in arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats
from tasklm.tasks.baselines.answer_words import Codes, Ints, Passage, Question

TELLING = 1.5  # weight above which a word tells where in a text something stands
FAR = 99  # words: there is no telling word in the sentence
_STEM_BITS = np.uint64(32)


@dataclass(frozen=True)
class Batch:
    """The words of several examples, one after the other."""

    codes: Codes  # (words, 4)
    is_word: NDArray[np.bool_]
    sentences: Ints  # numbered over all examples
    of: Ints  # the example of each word
    begins: Ints  # where the words of each example begin, and the end
    questions: Sequence[Question]

    @classmethod
    def of_examples(cls, passages: Sequence[Passage], questions: Sequence[Question]) -> Batch:
        """The words of passages with their questions."""
        counts = [len(passage.codes) for passage in passages]
        sizes = [1 + int(passage.sentences.max(initial=-1)) for passage in passages]
        firsts = np.cumsum([0, *sizes])
        return cls(
            np.concatenate([np.zeros((0, 4), np.uint64), *(one.codes for one in passages)]),
            np.concatenate([np.zeros(0, bool), *(one.is_word for one in passages)]),
            np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(one.sentences + first for one, first in zip(passages, firsts, strict=False)),
                ]
            ),
            np.repeat(np.arange(len(passages)), counts),
            np.cumsum([0, *counts]),
            questions,
        )


@dataclass(frozen=True)
class Overlap:
    """How words, their sentences and their texts overlap with the questions."""

    weights: Floats  # of the words that the question has too; 0 for others
    left: Ints  # words to the nearest telling one before, in the same sentence
    right: Ints
    left_places: Ints  # where that one stands in the question, from the asking word on; FAR: none
    right_places: Ints
    around: tuple[Floats, Floats, Floats]  # weights within 5 before, 5 after, 10 on either side
    shares: Floats  # of the question's weight that the word's sentence has
    gaps: Floats  # weight that the best sentence has more
    ranks: Ints  # of the word's sentence in its text
    best: Floats  # (examples,): the share of the best sentence …
    second: Floats  # … of the next …
    covered: Floats  # … and of the whole text


def overlap_of(batch: Batch) -> Overlap:
    """The overlap of a batch."""
    count, words = len(batch.questions), len(batch.of)
    owner = np.repeat(np.arange(count), [len(one.stems) for one in batch.questions])
    stems = _flat([one.stems for one in batch.questions], np.uint64)
    weight = _flat([one.weights for one in batch.questions], np.float64)
    places = _flat([one.places for one in batch.questions], np.int64)
    total = np.bincount(owner, weight, count)
    total = np.where(total > 0, total, 1.0)
    matched = _matches(batch, owner.astype(np.uint64) << _STEM_BITS | stems)
    here = matched >= 0
    weights = np.where(here, np.append(weight, 0.0)[matched], 0.0)
    in_question = np.where(here, np.append(places, 0)[matched], FAR)
    points, owners = _sentence_points(batch, matched, weights)
    ranks, best, second = _ranked(points, owners, count)
    present = np.unique(matched[here])
    covered = np.bincount(owner[present], weight[present], count)
    places_of_words = np.arange(words)
    telling = weights > TELLING
    before = _shifted(np.maximum.accumulate(np.where(telling, places_of_words, -1)), 1, -1)
    after = np.minimum.accumulate(np.where(telling, places_of_words, words)[::-1])[::-1]
    after = _shifted(after, -1, words)
    left, left_places = _nearest(before, batch.sentences, in_question)
    right, right_places = _nearest(after, batch.sentences, in_question)
    own = batch.sentences
    return Overlap(
        weights,
        left,
        right,
        left_places,
        right_places,
        _around(batch, weights),
        points[own] / total[batch.of],
        best[batch.of] - points[own],
        ranks[own],
        best / total,
        second / total,
        covered / total,
    )


def _flat(parts: Sequence[Sequence[float]], kind: type) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate([np.zeros(0, kind), *(np.array(part, kind) for part in parts)])


def _matches(batch: Batch, keys: Codes) -> Ints:
    """Which stem of its question each word has; -1 where it has none."""
    if not len(keys):
        return np.full(len(batch.of), -1)
    order = np.argsort(keys, kind="stable")
    wanted = batch.of.astype(np.uint64) << _STEM_BITS | batch.codes[:, 1]
    place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where((keys[order][place] == wanted) & batch.is_word, order[place], -1)


def _sentence_points(batch: Batch, matched: Ints, weights: Floats) -> tuple[Floats, Ints]:
    """The weight of each sentence, every stem counted once, and the example of each."""
    count = 1 + int(batch.sentences.max(initial=-1))
    owners = np.zeros(count, np.int64)
    owners[batch.sentences] = batch.of
    pairs = batch.sentences * (2 + matched.max(initial=-1)) + matched + 1
    once = np.unique(pairs, return_index=True)[1]
    points = np.bincount(batch.sentences[once], weights[once], count)
    return np.asarray(points, np.float64), owners


def _ranked(points: Floats, owners: Ints, count: int) -> tuple[Ints, Floats, Floats]:
    """The rank of each sentence among those of its example, and the two highest weights there."""
    order = np.lexsort((-points, owners))
    firsts = np.searchsorted(owners, np.arange(count))
    ranks = np.empty(len(points), np.int64)
    ranks[order] = np.arange(len(points)) - firsts[owners[order]]
    best, second = np.zeros(count), np.zeros(count)
    best[owners[ranks == 0]] = points[ranks == 0]
    second[owners[ranks == 1]] = points[ranks == 1]
    return ranks, best, second


def _shifted(values: Ints, step: int, missing: int) -> Ints:
    """The values one place on, or one place back."""
    moved = np.roll(values, step)
    if len(values):
        moved[0 if step > 0 else -1] = missing
    return moved


def _nearest(at: Ints, sentences: Ints, places: Ints) -> tuple[Ints, Ints]:
    """How far other words are, and their places in the question; FAR beyond the sentence."""
    if not len(at):
        return at, at
    inside = np.clip(at, 0, len(sentences) - 1)
    there = (at == inside) & (sentences[inside] == sentences)
    distance = np.abs(at - np.arange(len(at)))
    return np.where(there, distance, FAR), np.where(there, places[inside], FAR)


def _around(batch: Batch, weights: Floats) -> tuple[Floats, Floats, Floats]:
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    at = np.arange(len(weights))
    first, end = batch.begins[batch.of], batch.begins[batch.of + 1]
    before = sums[at] - sums[np.maximum(at - 5, first)]
    after = sums[np.minimum(at + 6, end)] - sums[at + 1]
    wide = sums[np.minimum(at + 11, end)] - sums[np.maximum(at - 10, first)]
    return before, after, wide
