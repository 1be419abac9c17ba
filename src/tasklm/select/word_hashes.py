"""Texts → a 64-bit hash per word, for the selectors that count or compare runs of words.

The words are those of `tasklm.corpus.words.words`; a hash is FNV-1a over the word's UTF-8 bytes, mixed by splitmix64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.corpus.kernels import Ints, Keys, mix
from tasklm.corpus.words import words
from tasklm.select.bm25_kernels import ANY_BYTE, LETTERS, SEPARATOR, compiled

_BASIS = np.uint64(14695981039346656037)
_PRIME = np.uint64(1099511628211)


def word_hashes(texts: Sequence[str]) -> tuple[Keys, Ints]:
    """Returns the hash of every word of the texts, end to end, and where each text ends.

    ASCII text is split by the compiled loop, other text by `words`; both give the same words.
    """
    parts: list[bytes] = []
    split_already = np.zeros(len(texts), np.bool_)
    for number, text in enumerate(texts):
        if text.isascii():
            parts.append(text.encode("ascii"))
        else:
            parts.append(SEPARATOR.join(words(text)).encode("utf-8"))
            split_already[number] = True
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    hashes, ends = _hash_words(np.frombuffer(b"".join(parts), np.uint8), bounds, split_already, LETTERS, ANY_BYTE)
    return hashes, ends


@compiled
def _hash_words(text: Any, bounds: Any, split_already: Any, letters: Any, any_byte: Any) -> Any:
    texts = bounds.size - 1
    hashes = np.empty((text.size + texts) // 2 + 1, np.uint64)  # a word takes a byte and a separator or the text's end
    ends = np.empty(texts, np.int64)
    count = 0
    for number in range(texts):
        table = any_byte if split_already[number] else letters
        state, inside = _BASIS, False
        for at in range(bounds[number], bounds[number + 1]):
            byte = table[text[at]]
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
