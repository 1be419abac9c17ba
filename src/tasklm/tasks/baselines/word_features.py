"""The features of each word of a sentence for a linear model: itself, its ends, shape, cluster and
neighbours.
"""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.storage.files import write_text
from tasklm.tasks.base import Unit
from tasklm.tasks.baselines.featuriser import count_tokens
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.word_rows import words_of
from tasklm.tasks.saved import of_format

FORMAT = 1
RARE = 2  # words that a feature must occur in
ENDS = (1, 2, 3, 4)  # letters of beginnings and endings
BEGIN, END = "\x02", "\x03"  # before and after a sentence
Clusters = Mapping[
    str, Sequence[int]
]  # of words in small letters: the coarse and the fine one of each


class WordFeatures:
    """Features of words in sentences, a row for each; a sentence without words has an empty one."""

    blocks = ("context",)

    def __init__(
        self, tokens: Sequence[str], characters: bool, clusters: Clusters | None = None
    ) -> None:
        self.tokens, self.characters, self.clusters = list(tokens), characters, dict(clusters or {})
        self._number = {token: column for column, token in enumerate(self.tokens)}

    @classmethod
    def fit(
        cls, train: Sequence[Example], characters: bool, most: int, clusters: Clusters | None = None
    ) -> WordFeatures:
        """The features that training sentences have most often, and more than once."""
        return cls.fit_parts(train, characters, most, clusters)[0]

    @classmethod
    def fit_parts(
        cls, train: Sequence[Example], characters: bool, most: int, clusters: Clusters | None = None
    ) -> tuple[WordFeatures, dict[str, Any]]:
        """The features of training sentences, and their matrix, in one pass over them."""
        tokens, counts = count_tokens(_rows(train, characters, clusters or {}))
        times = np.asarray(counts.sum(0)).ravel()
        enough = np.flatnonzero(times >= RARE)
        chosen = np.sort(enough[np.argsort(-times[enough], kind="stable")[:most]])
        matrix = counts[:, chosen].astype(np.float64)
        matrix.data[:] = 1.0
        fitted = cls([tokens[number] for number in chosen], characters, clusters)
        return fitted, {"context": matrix}

    def parts(self, examples: Sequence[Example]) -> dict[str, Any]:
        """One matrix, with a row for each word."""
        from scipy.sparse import csr_matrix

        columns, ends = array("i"), array("q", [0])
        for features in _rows(examples, self.characters, self.clusters):
            columns.extend(sorted({self._number[one] for one in features if one in self._number}))
            ends.append(len(columns))
        present = (np.ones(len(columns)), np.array(columns, np.int32), np.array(ends, np.int64))
        return {"context": csr_matrix(present, shape=(len(ends) - 1, len(self.tokens)))}

    def counts(self, examples: Sequence[Example]) -> list[int]:
        """How many rows each example has."""
        return [max(1, len(words_of(example, self.characters)[0])) for example in examples]

    def units(self, examples: Sequence[Example]) -> list[Unit]:
        """A unit without tokens for each sentence, with a place for each row."""
        counts = enumerate(self.counts(examples))
        return [Unit([], list(range(count)), None, example=number) for number, count in counts]

    def save(self, folder: Path) -> None:
        """Writes words.json."""
        about = {
            "format": FORMAT,
            "characters": self.characters,
            "tokens": self.tokens,
            "clusters": self.clusters,
        }
        write_text(folder / "words.json", json.dumps(about) + "\n")

    @classmethod
    def load(cls, folder: Path) -> WordFeatures:
        """The features that `save` wrote."""
        about = of_format(folder / "words.json", FORMAT)
        clusters = {
            str(word): tuple(map(int, numbers))
            for word, numbers in about.get("clusters", {}).items()
        }
        return cls([str(token) for token in about["tokens"]], bool(about["characters"]), clusters)


def _rows(examples: Sequence[Example], characters: bool, clusters: Clusters) -> Iterator[list[str]]:
    """The features of each word; a sentence without words has a row without any."""
    known: dict[str, list[str]] = {}
    for example in examples:
        yield from _features(words_of(example, characters)[0], known, clusters) or [[]]


def _features(
    words: Sequence[str], known: dict[str, list[str]], clusters: Clusters
) -> list[list[str]]:
    """The features of each word; those of the word by itself are made once
    for each different word.
    """
    # lone surrogates, which JSON cannot store, become question marks
    whole = [word.encode("utf-8", "replace").decode() for word in words]
    low = [BEGIN, BEGIN, *(word.lower() for word in whole), END, END]
    shapes = [BEGIN, *map(shape_of, whole), END]
    features = []
    for place, word in enumerate(whole):
        if word not in known:
            known[word] = _of_the_word(word)
        before, own, after = low[place + 1 : place + 4]
        shape = shapes[place : place + 3]
        around = [f"p {before}", f"n {after}", f"pw {before} {own}", f"wn {own} {after}"]
        further = [
            f"pp {low[place]}",
            f"nn {low[place + 4]}",
            f"sp {shape[0]}",
            f"sn {shape[2]}",
            f"sss {' '.join(shape)}",
        ]
        features.append(
            [
                *known[word],
                *around,
                *further,
                *_of_clusters([clusters.get(one, ()) for one in (before, own, after)]),
            ]
        )
    return features


def _of_clusters(clusters: Sequence[Sequence[int]]) -> list[str]:
    """The clusters of the words before, at and after a place, and the finest of two together."""
    features: list[str] = []
    if not any(clusters):
        return features
    for side, numbers in zip("pon", clusters, strict=True):
        features += [f"c{side}{size} {number}" for size, number in enumerate(numbers)]
    before, own, after = clusters
    if before and own:
        features.append(f"cpo {before[-1]} {own[-1]}")
    if own and after:
        features.append(f"con {own[-1]} {after[-1]}")
    return features


def _of_the_word(word: str) -> list[str]:
    begins = [f"b {word[:size]}" for size in ENDS]
    ends = [f"e {word[-size:]}" for size in ENDS]
    return [f"W {word}", f"w {word.lower()}", f"s {shape_of(word)}", *begins, *ends]


@functools.lru_cache(maxsize=1 << 16)
def shape_of(word: str) -> str:
    """Capitals as X, small letters as x, digits as 0, with repetitions collapsed."""
    shape = ""
    for letter in word:
        sign = letter
        if letter.isupper():
            sign = "X"
        elif letter.isalpha():
            sign = "x"
        elif letter.isdigit():
            sign = "0"
        if not shape.endswith(sign):
            shape += sign
    return shape
