"""Texts → a 64-bit hash per word, for the selectors that count or compare runs of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasklm.corpus.kernels import Ints, Keys
from tasklm.corpus.words import words
from tasklm.select.lexical.kernels import hash_words, needs_help
from tasklm.select.lexical.text import folds, with_help


def word_hashes(texts: Sequence[str]) -> tuple[Keys, Ints]:
    """The hash of every word of the texts (as `words` splits them), concatenated, and where each
    text ends.
    """
    parts = [text.encode("utf-8", "replace") for text in texts]
    text = np.frombuffer(b"".join(parts), np.uint8)
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    hard = needs_help(text, bounds, folds().hard)
    hashes, ends = hash_words(
        *with_help(text, bounds, hard, words), hard, folds().at, folds().folded
    )
    return hashes, ends
