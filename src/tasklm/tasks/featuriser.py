"""What a linear model sees of examples: TF-IDF of words and letters, of words around marks, and how alike two texts are.

Fitted on training examples, it turns any others into a sparse matrix, the same each time. Its number of features is bounded; it is
saved as JSON and plain arrays.

| block | features | of |
|---|---|---|
| words | words and word pairs of each text: topics | all |
| letters | runs of 3 to 5 letters in words: morphology and spelling, of any language | single texts |
| marks | words in, before, between and after the marks, their order and distance (`marks.mark_words`) | texts with marks |
| shared | words in both texts, in one of them, and pairs of words in which they differ (`pair_words`) | pairs |
| alike | similarities of the two texts, each as a row of ramps, so that a linear model can bend (`pair_words`) | pairs |
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import folded, words
from tasklm.errors import RunError
from tasklm.runs import read_json, write_bytes, write_text
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import mark_words
from tasklm.tasks.pair_words import bigrams, shared_words, similarities

FORMAT = 1
MOST = 100_000  # features of a block: those that most examples have
SHORTEST, LONGEST = 3, 5  # runs of letters
RARE = 2  # examples that a run of letters or a pair of words of two texts must occur in to count: single ones are too many
Tokens = Callable[[Any], list[str]]  # of what an example gives a block


@dataclass(frozen=True)
class Block:
    """Tokens of one sort, and the inverse document frequency of each in train."""

    tokens: list[str]
    idf: NDArray[np.float64]

    @classmethod
    def of(cls, tokens: Sequence[str], counts: Any, rarest: int, most: int) -> Block:
        """The block of tokens, sorted by name, whose counts in train are the columns of a matrix: the `most` that most rows have."""
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        enough = np.flatnonzero(frequency >= rarest)
        chosen = np.sort(enough[np.argsort(-frequency[enough], kind="stable")[:most]])
        idf = np.log((1 + counts.shape[0]) / (1 + frequency[chosen])) + 1
        return cls([tokens[number] for number in chosen], idf)

    def weighed(self, counts: Any) -> Any:
        """The TF-IDF of counts of the tokens: 1 + log(count), times the weight of the token, in rows of length 1."""
        from sklearn.preprocessing import normalize

        matrix = counts.astype(np.float64)
        matrix.data = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
        return normalize(matrix, copy=False)


class Featuriser:
    """Blocks of features of examples of one kind."""

    def __init__(self, blocks: Mapping[str, Block], marks: Sequence[str], pairs: bool) -> None:
        self.blocks, self.marks, self.pairs = dict(blocks), tuple(marks), pairs
        self._weights = {token: float(idf) for token, idf in zip(self.blocks["words"].tokens, self.blocks["words"].idf, strict=True)}

    @classmethod
    def fit(cls, train: Sequence[Example], marks: Sequence[str] = (), most: int = MOST) -> Featuriser:
        """The featuriser that training examples describe; the texts of a pair are of one language, so they share their words."""
        pairs = len(train[0].texts) == 2
        texts = [text for example in train for text in example.texts]
        blocks = {"words": _fitted(word_grams, texts, 1, most), "letters": _fitted_letters(texts, most)}
        if marks:
            blocks["marks"] = _fitted(lambda text: mark_words(text, marks), [example.text for example in train], 1, most)
        if pairs:
            blocks["shared"] = _fitted(shared_words, [example.texts for example in train], RARE, most)
        return cls(blocks, marks, pairs)

    def parts(self, examples: Sequence[Example]) -> dict[str, Any]:
        """A sparse matrix of each block of features, with a row for each example; blocks without features are left out."""
        sides = [[example.texts[side] for example in examples] for side in range(2 if self.pairs else 1)]
        of_words = [self._counted("words", word_grams, side) for side in sides]
        of_letters = [self.blocks["letters"].weighed(_letter_counts(side, self.blocks["letters"].tokens)) for side in sides]
        parts = {"words": _beside(of_words)}
        if self.pairs:
            parts["shared"] = self._counted("shared", shared_words, [example.texts for example in examples])
            parts["alike"] = similarities(sides[0], sides[1], self._weights, [_cosines(*of_words), _cosines(*of_letters)])
        else:
            parts["letters"] = of_letters[0]
        if self.marks:
            parts["marks"] = self._counted("marks", lambda text: mark_words(text, self.marks), [example.text for example in examples])
        return {name: matrix for name, matrix in parts.items() if matrix.shape[1]}

    def transform(self, examples: Sequence[Example]) -> Any:
        """One sparse matrix of all features, with a row for each example."""
        return _beside(list(self.parts(examples).values()))

    def save(self, folder: Path) -> None:
        """Writes features.json (what the features are) and features.npz (their weights) into a folder."""
        about = {"format": FORMAT, "marks": self.marks, "pairs": self.pairs}
        blocks = {name: block.tokens for name, block in self.blocks.items()}
        write_text(folder / "features.json", json.dumps({**about, "blocks": blocks}) + "\n")
        arrays = io.BytesIO()
        np.savez(arrays, allow_pickle=False, **{name: block.idf for name, block in self.blocks.items()})
        write_bytes(folder / "features.npz", arrays.getvalue())

    @classmethod
    def load(cls, folder: Path) -> Featuriser:
        """The featuriser that `save` wrote."""
        about = read_json(folder / "features.json")
        if about.get("format") != FORMAT:
            problem = f"{folder / 'features.json'} has format {about.get('format')!r}, this version reads {FORMAT}"
            raise RunError(f"{problem}. Make it again.")
        with np.load(folder / "features.npz") as arrays:
            blocks = {name: Block(tokens, arrays[name]) for name, tokens in about["blocks"].items()}
        return cls(blocks, about["marks"], about["pairs"])

    def _counted(self, name: str, tokens: Tokens, given: Sequence[Any]) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        block = self.blocks[name]
        if not block.tokens or not len(given):
            return _empty(len(given), len(block.tokens))
        return block.weighed(CountVectorizer(analyzer=tokens, vocabulary=block.tokens).transform(given))


def word_grams(text: str) -> list[str]:
    """The words of a text and the pairs of neighbouring ones."""
    single = words(text)
    return single + bigrams(single)


def _fitted(tokens: Tokens, given: Sequence[Any], rarest: int, most: int) -> Block:
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=tokens)
    try:
        counts = vectorizer.fit_transform(given)
    except ValueError:  # no example has a token
        return Block([], np.zeros(0))
    return Block.of(vectorizer.get_feature_names_out().tolist(), counts, rarest, most)


def _fitted_letters(texts: Sequence[str], most: int) -> Block:
    runs, counts = _letters(texts)
    return Block.of(runs, counts, RARE, most)


def _letter_counts(texts: Sequence[str], runs: Sequence[str]) -> Any:
    """How often some runs of letters occur in texts."""
    return _letters(texts, runs)[1] if len(runs) else _empty(len(texts), 0)


def _letters(texts: Sequence[str], runs: Sequence[str] | None = None) -> tuple[list[str], Any]:
    """All runs of letters between the spaces of texts, or those that are given, and their counts.

    The same words come again and again: the runs of each are looked for once, and multiplied by how often a text has it.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    of_words = CountVectorizer(analyzer=_between_spaces)
    of_runs = CountVectorizer(analyzer="char_wb", ngram_range=(SHORTEST, LONGEST), lowercase=False, vocabulary=runs)
    try:
        in_texts = of_words.fit_transform(texts)
        in_words = of_runs.fit_transform(of_words.get_feature_names_out())
    except ValueError:  # the texts are empty
        return [], _empty(len(texts), len(runs or ()))
    return of_runs.get_feature_names_out().tolist(), in_texts @ in_words


def _between_spaces(text: str) -> list[str]:
    return folded(text).split()


def _cosines(one: Any, other: Any) -> NDArray[np.float64]:
    return np.asarray(one.multiply(other).sum(1), np.float64).ravel()


def _beside(matrices: Sequence[Any]) -> Any:
    from scipy.sparse import hstack

    return hstack(matrices, format="csr")


def _empty(rows: int, columns: int) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix((rows, columns))
