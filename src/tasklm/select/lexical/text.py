"""The text of a block, prepared for the compiled loops: nearly all of it is split there, the rest
here.

The loops fold and split ASCII and every character whose folding depends on nothing around it (most
of the letters of most alphabets). A passage with any other character (combining marks, scripts
without spaces …) is split by `terms` and passed on as its terms, so both ways give the same result.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasklm.corpus.store import PassageStore
from tasklm.corpus.words import folded, is_spaceless
from tasklm.select.lexical.kernels import SEPARATOR, Folds, needs_help
from tasklm.select.lexical.terms import Stemmer, terms

BLOCK_PASSAGES = 1 << 16  # passage numbers inside a block are 16 bits wide
BLOCK_BYTES = 64 << 20
_CODES = 1 << 16  # characters beyond these (emoji, historic scripts) always go through `terms`
# letters that melt into syllables with their neighbours
_JAMO = ((0x1100, 0x11FF), (0xA960, 0xA97F), (0xD7B0, 0xD7FF))


@dataclass
class RawBlock:
    """The text of one block: passages end to end as UTF-8, or their terms joined by SEPARATOR."""

    start: int
    text: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]  # [passages + 1]
    split_already: npt.NDArray[np.bool_]  # [passages]

    @property
    def stop(self) -> int:
        """The number of the passage after the last."""
        return self.start + len(self.split_already)


def block_bounds(store: PassageStore, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of each block from passage `start`; their ends depend only on the
    passages before.
    """
    while start < len(store):
        stop = min(start + BLOCK_PASSAGES, len(store))
        limit = store.bytes_up_to(start) + BLOCK_BYTES
        while stop > start + 1 and store.bytes_up_to(stop) > limit:
            stop = start + (stop - start + 1) // 2
        yield start, stop
        start = stop


def read_block(store: PassageStore, start: int, stop: int, stem: Stemmer | None = None) -> RawBlock:
    """The text of passages `start` up to `stop`."""
    block, bounds = store.raw(start, stop)
    return raw_block(start, np.frombuffer(block, np.uint8), bounds, stem)


def block_of_texts(start: int, texts: list[str], stem: Stemmer | None = None) -> RawBlock:
    """A block of texts in memory, numbered from `start`."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return raw_block(start, np.frombuffer(b"".join(encoded), np.uint8), bounds, stem)


def raw_block(
    start: int, text: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], stem: Stemmer | None
) -> RawBlock:
    """The block with the passages that need it split already; for stems, that is all of them."""
    if stem:
        hard = np.ones(len(bounds) - 1, np.bool_)
    else:
        hard = needs_help(text, bounds, folds().hard)
    text, bounds = with_help(text, bounds, hard, lambda passage: terms(passage, stem))
    return RawBlock(start, text, bounds, hard)


def with_help(
    text: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    hard: npt.NDArray[np.bool_],
    split: Callable[[str], list[str]],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns text and bounds with the hard passages replaced by what `split` makes of them."""
    if not hard.any():
        return text, bounds
    whole = memoryview(text.data)
    lengths = np.diff(bounds)
    parts = list[memoryview | bytes]()
    done = 0
    for number in np.flatnonzero(hard).tolist():
        first, last = int(bounds[number]), int(bounds[number + 1])
        passage = bytes(whole[first:last]).decode("utf-8", "replace")
        ready = SEPARATOR.join(split(passage)).encode("utf-8", "replace")
        parts += [whole[done:first], ready]
        lengths[number], done = len(ready), last
    parts.append(whole[done:])
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.frombuffer(b"".join(parts), np.uint8), bounds


@functools.cache
def folds() -> Folds:
    """How the compiled loops fold each character; a character that folds to nothing separates
    words.
    """
    hard, at, result = np.zeros(_CODES, np.bool_), np.zeros(_CODES + 1, np.int32), bytearray()
    for code in range(_CODES):
        utf8 = _fold(code)
        hard[code] = utf8 is None
        result += utf8 or b""
        at[code + 1] = len(result)
    return Folds(hard, at, np.frombuffer(bytes(result), np.uint8))


def _fold(code: int) -> bytes | None:
    """The UTF-8 of the folded character, nothing for what separates words, None where it takes more
    to say.
    """
    if 0xD800 <= code < 0xE000 or any(low <= code <= high for low, high in _JAMO):
        return None
    character = chr(code)
    result = folded(character)
    kinds = {unicodedata.category(part)[0] for part in character + result}
    if "M" in kinds or any(is_spaceless(part) for part in character + result):
        return None
    if not kinds & {"L", "N"}:
        return b""
    if any(unicodedata.category(part)[0] not in "LN" for part in result):
        return None
    return result.encode()
