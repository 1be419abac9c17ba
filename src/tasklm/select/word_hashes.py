"""Texts → a 64-bit hash per word, for the selectors that count or compare runs of words.

The words are those of `tasklm.corpus.words.words`; a hash is FNV-1a over the word's UTF-8 bytes, mixed by splitmix64.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.corpus.kernels import Ints, Keys, mix
from tasklm.corpus.words import words
from tasklm.select.bm25_kernels import ANY_BYTE, LETTERS, compiled

_BASIS = np.uint64(14695981039346656037)
_PRIME = np.uint64(1099511628211)
_LONG_TOKEN = 64  # characters; longer tokens do not come back often enough to be remembered
_LETTERS = np.where(ANY_BYTE < 128, LETTERS, ANY_BYTE)  # byte → folded byte, 0 between words; other text was folded before


def word_hashes(texts: Sequence[str]) -> tuple[Keys, Ints]:
    """Returns the hash of every word of the texts, end to end, and where each text ends."""
    parts = [text.encode("ascii") if text.isascii() else _folded_bytes(text) for text in texts]
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    hashes, ends = _hash_words(np.frombuffer(b"".join(parts), np.uint8), bounds, _LETTERS)
    return hashes, ends


def _folded_bytes(text: str) -> bytes:
    """Returns the text with its words that are not ASCII replaced by what `words` makes of them.

    No word and no normalisation crosses a space, so the tokens between spaces can be folded one by one, and most are ASCII.
    """
    return " ".join(
        [token if token.isascii() else _split(token) if len(token) < _LONG_TOKEN else " ".join(words(token)) for token in text.split()]
    ).encode("utf-8")


@functools.lru_cache(maxsize=1 << 16)
def _split(token: str) -> str:
    return " ".join(words(token))


@compiled
def _hash_words(text: Any, bounds: Any, letters: Any) -> Any:
    texts = bounds.size - 1
    hashes = np.empty((text.size + texts) // 2 + 1, np.uint64)  # a word takes a byte and a space or the text's end
    ends = np.empty(texts, np.int64)
    count = 0
    for number in range(texts):
        state, inside = _BASIS, False
        for at in range(bounds[number], bounds[number + 1]):
            byte = letters[text[at]]
            if byte != 0:
                state, inside = (state ^ np.uint64(byte)) * _PRIME, True
            elif inside:
                hashes[count] = mix(state)
                count += 1
                state, inside = _BASIS, False
        if inside:
            hashes[count] = mix(state)
            count += 1
        ends[number] = count
    return hashes[:count], ends
