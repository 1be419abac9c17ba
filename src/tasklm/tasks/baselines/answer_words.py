"""Questions and the texts that answer them as numbers, for linear models of answers.

Words are hashed: by themselves, by their first letters (a stem for most languages), by their last
letters and by their shape.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import folded, words
from tasklm.tasks.baselines.word_features import shape_of
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.word_rows import split_words

STEM, ENDING = 5, 3  # letters
ASKING = 20  # words that questions have far more often than texts: what, who, how …
ASKS = 4  # codes of what a question asks for
MOST_STEMS = 200_000
_FEWEST, _SHARE = 5, 500  # questions, and one of how many, that an asking word stands in
_ENDS_AT_ONCE = frozenset("。！？")
_SENTENCE_ENDS = _ENDS_AT_ONCE | frozenset(".!?")
_FIGURES = 4  # digits of a year

Codes = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """A text: where its words begin and end, their codes, and the sentence that each stands in."""

    text: str
    bounds: NDArray[np.int32]  # (words, 2)
    codes: Codes  # (words, 4): word, stem, ending, shape
    is_word: NDArray[np.bool_]  # no punctuation
    sentences: Ints


@dataclass(frozen=True)
class Question:
    """A question: what it asks for, and its different stems with the weight and place of each."""

    asks: list[int]  # codes of the asking word, with those after it, and of the first word
    stems: list[int]
    weights: list[float]
    places: list[int]  # words after the asking word
    size: int


def code_of(text: str) -> int:
    """A number for a text, the same everywhere."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def shape_with_years(word: str) -> str:
    """The shape of a word; four digits, which may be a year, are four."""
    if len(word) == _FIGURES and word.isdecimal():
        return "0" * _FIGURES
    return shape_of(word)


@functools.lru_cache(maxsize=1 << 13)
def read_passage(text: str) -> Passage:
    """The passage of a text; those read last are remembered."""
    bounds = split_words(text)
    single = [text[begin:end] for begin, end in bounds]
    codes = np.array([_codes(word) for word in single], np.uint64).reshape(-1, 4)
    is_word = np.array([word[0].isalnum() for word in single], bool)
    places = np.array(bounds, np.int32).reshape(-1, 2)
    return Passage(text, places, codes, is_word, _sentences(text, places, single))


@functools.lru_cache(maxsize=1 << 17)
def _codes(word: str) -> tuple[int, ...]:
    low = folded(word)
    return tuple(map(code_of, (low, low[:STEM], low[-ENDING:], shape_with_years(word))))


def _sentences(text: str, bounds: NDArray[np.int32], single: Sequence[str]) -> Ints:
    """The number of the sentence of each word, as punctuation and line ends part them."""
    first = np.zeros(len(single) + 1, np.int64)  # of a sentence
    for place, word in enumerate(single):
        if word in _SENTENCE_ENDS:
            end = bounds[place, 1]
            first[place + 1] = word in _ENDS_AT_ONCE or not text[end : end + 1].strip()
    lines = [place for place, letter in enumerate(text) if letter == "\n"]
    first[np.searchsorted(bounds[:, 0], lines)] = 1
    return np.cumsum(first[:-1])


def stem_weights(train: Sequence[Example]) -> dict[str, float]:
    """The weight of each stem in the texts of train: the logarithm of how rare it is."""
    texts = sorted({example.texts[1] for example in train})
    counts = Counter(chain.from_iterable({word[:STEM] for word in words(text)} for text in texts))
    common = sorted(counts, key=lambda stem: (-counts[stem], stem))[:MOST_STEMS]
    weight = {stem: math.log((1 + len(texts)) / (0.5 + counts[stem])) for stem in sorted(common)}
    return {stem: round(own, 4) for stem, own in weight.items()}


def asking_words(train: Sequence[Example]) -> list[str]:
    """The words that questions of train have far more often than its texts; the surest first."""
    asked_in: Counter[str] = Counter()
    for example in train:
        asked_in.update(words(example.texts[0]))
    texts: Counter[str] = Counter()
    for text in {example.texts[1] for example in train}:
        texts.update(words(text))
    fewest = max(_FEWEST, len(train) / _SHARE)
    size, size_of_texts = asked_in.total(), 1 + texts.total()
    surplus = {
        word: count * math.log((count / size) / ((0.5 + texts[word]) / size_of_texts))
        for word, count in asked_in.items()
        if count >= fewest
    }
    ranked = sorted(surplus, key=lambda word: (-surplus[word], word))
    return [word for word in ranked[:ASKING] if surplus[word] > 0]


class QuestionReader:
    """Reads questions, by the weights of stems and the words that ask."""

    def __init__(self, weights: Mapping[str, float], asking: Sequence[str]) -> None:
        self._weights, self._rarest = weights, max(weights.values(), default=1.0)
        self._rank = {word: rank for rank, word in enumerate(asking)}

    def read(self, text: str) -> Question:
        """The question that a text asks."""
        own = words(text)
        ranked = [(self._rank[word], place) for place, word in enumerate(own) if word in self._rank]
        at = min(ranked)[1] if ranked else 0
        first, asks, after, second = [*own[:1], ""][0], *[*own[at : at + 3], "", "", ""][:3]
        codes = [f"a {asks}", f"b {asks} {after}", f"c {after} {second}", f"d {first}"]
        places: dict[str, int] = {}
        for place, word in enumerate(own):
            places.setdefault(word[:STEM], place - at)
        weights = [self._weights.get(stem, self._rarest) for stem in places]
        stems = [code_of(stem) for stem in places]
        return Question(
            [code_of(code) for code in codes], stems, weights, [*places.values()], len(own)
        )
