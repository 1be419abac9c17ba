"""Word vectors from raw text: co-occurrence counts of words, as counts.py counts tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from tasklm.corpus.words import words
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tokens.shards import Shards
from tasklm.train.init.counts import associations, embeddings

WIDTH = 100  # 200 score no better on dev of AG News, SST-2 and NICTA-PIBOSO
MOST_TYPES = 30_000  # words that get a vector: the most frequent ones …
RAREST = 5  # … that occur so often
UNKNOWN = 0


def word_vectors(
    batches: Iterable[Sequence[str]], most_types: int = MOST_TYPES, width: int = WIDTH
) -> WordVectors | None:
    """The vectors of the words of some text; None where no word is frequent enough."""
    names, numbers, ends = _numbered(batches)
    counts = np.bincount(numbers, minlength=len(names))
    frequent = sorted(
        np.flatnonzero(counts >= RAREST).tolist(),
        key=lambda number: (-counts[number], names[number]),
    )
    chosen = frequent[:most_types]
    if len(chosen) < 2:
        return None
    renumbered = np.full(len(names), UNKNOWN, np.int32)
    renumbered[chosen] = np.arange(1, len(chosen) + 1)
    text = Shards(renumbered[numbers], ends)
    table = embeddings(associations([text], len(chosen) + 1, [UNKNOWN]), width)[1:]
    shares = counts[chosen] / max(1, len(numbers))
    halved = table.astype(np.float16).astype(np.float32)  # as exact as they are saved
    return WordVectors([names[number] for number in chosen], halved, shares.astype(np.float32))


def _numbered(batches: Iterable[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The different words of texts, all words by their numbers, and where each text ends."""
    numbers: dict[str, int] = {}
    present, ends = array("i"), array("q", [0])
    for batch in batches:
        for text in batch:
            present.extend([numbers.setdefault(word, len(numbers)) for word in words(text)])
            ends.append(len(present))
    return list(numbers), np.array(present, np.int32), np.array(ends, np.int64)
