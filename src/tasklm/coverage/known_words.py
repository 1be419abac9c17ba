"""Which words the training examples have, as bits of a small table, and how new a text is.

The share of a text's words that no training example has is known for every model, whatever it holds
besides: the language model of stage 1 is not kept with it, and a linear model knows only frequent
words. It told texts of other tasks apart better than the likelihood of letters on most real tasks
(docs/benchmarks/coverage.md).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.words import words
from tasklm.tasks.saved import text_in

BITS_PER_WORD = 16  # so that one in 16 new words, at most, passes for a known one
FEWEST, MOST = 10, 22  # powers of two that a table may have as its number of bits


@dataclass(frozen=True)
class KnownWords:
    """A bit for each hash of a word."""

    bits: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Iterable[str]) -> KnownWords:
        """The words of some texts."""
        known: set[str] = set()
        for text in texts:
            known.update(words(text))
        power = FEWEST
        while power < MOST and 1 << power < BITS_PER_WORD * len(known):
            power += 1
        bits = np.zeros(1 << power, np.bool_)
        bits[[_hash(word) % len(bits) for word in known]] = True
        return cls(bits)

    def share_of_new(self, text: str) -> float:
        """The share of a text's words that are not known; 1 for a text without words."""
        given = words(text)
        if not given:
            return 1.0
        known = sum(bool(self.bits[_hash(word) % len(self.bits)]) for word in given)
        return round(1.0 - known / len(given), 6)

    def to_dict(self) -> dict[str, str]:
        """The table as text."""
        packed = zlib.compress(np.packbits(self.bits).tobytes(), 9)
        return {"bits": base64.b64encode(packed).decode("ascii")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> KnownWords:
        """The table that `to_dict` wrote; raises ValueError for anything else."""
        most = (1 << MOST) // 8
        unpacking = zlib.decompressobj()
        packed = base64.b64decode(text_in(values, "bits"), validate=True)
        try:
            content = unpacking.decompress(packed, most)
        except zlib.error as error:
            raise ValueError(f"the table of words cannot be read: {error}") from None
        sizes = [(1 << power) // 8 for power in range(FEWEST, MOST + 1)]
        if len(content) not in sizes or not unpacking.eof:
            raise ValueError("the table of words has an impossible size")
        return cls(np.unpackbits(np.frombuffer(content, np.uint8)).astype(np.bool_))


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
