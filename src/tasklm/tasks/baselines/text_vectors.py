"""Word vectors of raw text as features of a linear model: the mean of a text, the cluster of a
word.

A linear model of words knows nothing about words that are in no training example. Vectors are
learnt from unlabelled text, where words of similar meaning occur in similar contexts, so that what
is learnt about one word carries over to its neighbours. Frequent words count less in the mean of a
text, and the common component of all training texts is removed, as in "A Simple but Tough-to-Beat
Baseline for Sentence Embeddings" (Arora, Liang and Ma, ICLR 2017).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tasklm.corpus.words import words
from tasklm.errors import RunError
from tasklm.storage.files import write_bytes, write_text
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Floats
from tasklm.tasks.saved import of_format

FORMAT = 1
RARITY = 1e-3  # a word with share p of all words weighs RARITY / (RARITY + p)
SIZE = (
    0.3  # norm of a text's vector relative to its TF-IDF rows of norm 1: it only tips the balance
)
CLUSTERS = (64, 512)  # coarse and fine: names of many kinds, and months, diseases, first names
_ROUNDS, _AT_ONCE = 30, 4096  # of k-means, and words of a batch
_TINY = 1e-9


@dataclass(frozen=True)
class WordVectors:
    """A vector for each of some words, and the share of each among all words."""

    words: list[str]
    table: NDArray[np.float32]  # (words, width), numbers of half precision
    shares: NDArray[np.float32]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The row of each word."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def weighted(self) -> NDArray[np.float32]:
        """The vectors as they count in the mean of a text."""
        return np.asarray(self.table * (RARITY / (RARITY + self.shares))[:, None])

    def means(self, texts: Sequence[str]) -> Floats:
        """The weighted mean vector of each text, zeros where none of its words is known."""
        means = np.zeros((len(texts), self.table.shape[1]))
        for row, text in enumerate(texts):
            if numbers := [self.numbers[word] for word in words(text) if word in self.numbers]:
                means[row] = self.weighted[numbers].mean(0, dtype=np.float64)
        return means

    def clusters(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the clusters of each word, coarse and fine, by k-means of directions."""
        from sklearn.cluster import MiniBatchKMeans

        directions, numbers = unit_rows(self.table), []
        for size in CLUSTERS:
            size = min(size, len(directions))
            means = MiniBatchKMeans(
                size, n_init=1, batch_size=_AT_ONCE, max_iter=_ROUNDS, random_state=0
            )
            numbers.append(means.fit_predict(directions).tolist())
        return {word: tuple(of[row] for of in numbers) for row, word in enumerate(self.words)}


@dataclass(frozen=True)
class TextVectors:
    """Word vectors, and the mean of the training texts: turns texts into features."""

    vectors: WordVectors
    middle: NDArray[np.float32]

    @classmethod
    def fit(cls, vectors: WordVectors, texts: Sequence[str]) -> TextVectors:
        """The features of training texts."""
        return cls(vectors, vectors.means(texts).mean(0).astype(np.float32))

    def matrix(self, texts: Sequence[str]) -> Any:
        """A sparse matrix with the direction of each text from the mean of the training texts."""
        from scipy.sparse import csr_matrix

        return csr_matrix(SIZE * unit_rows(self.vectors.means(texts) - self.middle))

    def save(self, folder: Path) -> None:
        """Writes vectors.json, the words, and vectors.safetensors, their vectors."""
        about = {"format": FORMAT, "words": self.vectors.words}
        write_text(folder / "vectors.json", json.dumps(about) + "\n")
        arrays: dict[str, Any] = {"shares": self.vectors.shares, "middle": self.middle}
        arrays["table"] = self.vectors.table.astype(np.float16)
        write_bytes(folder / "vectors.safetensors", safetensors.numpy.save(arrays))

    @classmethod
    def load(cls, folder: Path) -> TextVectors | None:
        """The features that `save` wrote; None if a folder has none."""
        file = folder / "vectors.json"
        if not file.exists():
            return None
        names = of_format(file, FORMAT, "Train the model again.")["words"]
        arrays = safetensors.numpy.load_file(require_regular(folder / "vectors.safetensors"))
        table, shares, middle = (
            arrays[name].astype(np.float32) for name in ("table", "shares", "middle")
        )
        if table.ndim != 2 or shares.shape != table.shape[:1] or middle.shape != table.shape[1:]:
            raise ValueError("vectors.safetensors does not contain word vectors")
        if len(names) != len(table) or len(set(names)) != len(names):
            raise RunError(
                f"{file} and vectors.safetensors beside it "
                f"have different words. Train the model again."
            )
        if not all(np.isfinite(array).all() for array in (table, shares, middle)):
            raise RunError(
                f"{folder / 'vectors.safetensors'} has "
                f"numbers that are not finite. Train the model again."
            )
        return cls(WordVectors(names, table, shares), middle)


def unit_rows(rows: Any) -> Any:
    """Rows normalised to length 1; zero rows stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
