"""Texts as sparse vectors of hashed words, by which unlike ones are told apart.

No vocabulary is fitted: a pile has words that the labelled texts have not. Word weights (inverse
document frequencies) are those of the texts given together.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.corpus.words import words
from tasklm.tasks.examples import Example

BITS = 16  # 65,536 places for words


def text_vectors(examples: Sequence[Example]) -> Any:
    """A sparse matrix with a row of length 1 for each example, of 1 + log(count) times the weight
    of each word; the row of a text without words is empty.
    """
    from scipy.sparse import csr_matrix

    places, counts, ends = array("q"), array("d"), [0]
    for example in examples:
        own = Counter(map(_place, words(example.text)))
        places.extend(own)
        counts.extend(own.values())
        ends.append(len(places))
    values = 1 + np.log(np.array(counts, np.float64))
    matrix = csr_matrix((values, np.array(places), np.array(ends)), (len(examples), 1 << BITS))
    matrix.sort_indices()
    frequency = np.bincount(matrix.indices, minlength=1 << BITS)
    matrix.data *= (np.log((1 + len(examples)) / (1 + frequency)) + 1)[matrix.indices]
    rows = np.repeat(np.arange(len(examples)), np.diff(matrix.indptr))
    lengths = np.sqrt(np.bincount(rows, matrix.data**2, len(examples)))
    matrix.data /= np.where(lengths > 0, lengths, 1.0)[rows]
    return matrix


def _place(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) & ((1 << BITS) - 1)
