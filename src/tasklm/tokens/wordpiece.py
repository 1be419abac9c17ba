"""Learning a WordPiece vocabulary, the same one every time.

The trainer of `tokenizers` walks hash tables in an order that changes from process to process, so
that ties between pairs are broken differently and the same data gives another vocabulary. This one
breaks ties by number.
"""

from __future__ import annotations

import heapq
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

from tasklm.tokens.pairs import join, taken, words_of

PREFIX = "##"  # marks a piece that continues a word
_HELD = 1 << 20  # distinct pieces between spaces, counted before they are normalised
_LONGEST = 100  # characters of a word to learn from


def count_words(
    batches: Iterable[Sequence[str]], normalizer: normalizers.Normalizer
) -> Counter[str]:
    """How often each word occurs after normalising; punctuation marks are words, as in BERT.

    The normaliser must treat one character at a time, like BERT's. A string between two spaces is
    then split only once, however often it occurs.
    """
    counts: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    characters = _Characters(normalizer)
    for texts in batches:
        for text in texts:
            pieces.update(text.split(" "))
        if len(pieces) > _HELD:
            _add_words(counts, pieces, characters)
            pieces.clear()
    _add_words(counts, pieces, characters)
    return counts


def _add_words(counts: Counter[str], pieces: Counter[str], characters: _Characters) -> None:
    """Adds the words of each piece as often as it occurs."""
    equally_often: dict[int, list[str]] = {}
    for piece, count in pieces.items():
        equally_often.setdefault(count, []).append(piece)
    for count, some in equally_often.items():
        words = Counter(" ".join(some).translate(characters).split())
        counts.update({word: count * times for word, times in words.items()})


class _Characters(dict[int, str]):
    """Code point → what the normaliser makes of it, with punctuation marks between spaces."""

    def __init__(self, normalizer: normalizers.Normalizer) -> None:
        super().__init__()
        self._normalizer = normalizer

    def __missing__(self, code: int) -> str:
        normal = str(self._normalizer.normalize_str(chr(code)))
        self[code] = text = "".join(
            f" {character} " if _is_mark(character) else character for character in normal
        )
        return text


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("P") or (
        character.isascii() and character.isprintable() and not character.isalnum()
    )


def learn(
    counts: Counter[str], size: int, specials: Sequence[str], alphabet: int, least: int = 2
) -> dict[str, int]:
    """Token → number: specials, characters, then merges of the most frequent pair, one by one."""
    codes, starts, often = _characters(counts, alphabet)
    first = np.zeros(len(codes), np.bool_)
    first[starts[:-1]] = True
    beginning, later = np.unique(codes[first]), np.unique(codes[~first])
    tokens = [*specials, *map(chr, beginning), *(PREFIX + chr(code) for code in later)]
    number = {token: i for i, token in enumerate(tokens)}
    places = np.where(
        first, np.searchsorted(beginning, codes), len(beginning) + np.searchsorted(later, codes)
    )
    merger = _Merger(
        (len(specials) + places).astype(np.int32), starts, often, max(size, len(tokens))
    )
    while len(tokens) < size and (pair := merger.best(least)) is not None:
        left, right = (tokens[part] for part in pair)
        joined = left + right.removeprefix(PREFIX)
        if joined not in number:
            number[joined] = len(tokens)
            tokens.append(joined)
        merger.merge(pair, number[joined])
    return {token: i for i, token in enumerate(tokens)}


def _characters(
    counts: Counter[str], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The words that consist of the `most` frequent characters and are not too long.

    They come as the code points of all words end to end, where each word begins and the last ends,
    and how often each occurs.
    """
    codes = np.frombuffer("".join(counts).encode("utf-32-le"), "<u4").astype(np.int64)
    lengths = np.fromiter(map(len, counts), np.int64, len(counts))
    often = np.fromiter(counts.values(), np.int64, len(counts))
    frequency = np.zeros(sys.maxunicode + 1, np.int64)
    np.add.at(frequency, codes, np.repeat(often, lengths))
    rare = np.ones(sys.maxunicode + 1, np.bool_)
    # of equally frequent ones, the lower code points
    rare[np.argsort(-frequency, kind="stable")[:most]] = False
    owner = np.repeat(np.arange(len(counts)), lengths)
    usable = (lengths <= _LONGEST) & (np.bincount(owner, rare[codes], len(counts)) == 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[usable])])
    return codes[usable[owner]], starts, often[usable]


class _Merger:
    """Words as token numbers, with count and places of every pair, named left << 32 | right."""

    def __init__(
        self,
        tokens: NDArray[np.int32],
        starts: NDArray[np.int64],
        often: NDArray[np.int64],
        size: int,
    ) -> None:
        self.words, pairs, counts, heads = words_of(tokens, starts, often, size)
        self.pairs = dict(zip(pairs.tolist(), counts.tolist(), strict=True))
        self.places = {
            pair: [head] for pair, head in zip(pairs.tolist(), heads.tolist(), strict=True)
        }
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(self.heap)

    def best(self, least: int) -> tuple[int, int] | None:
        """The most frequent pair (the lowest numbers on a tie), if it is frequent enough."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            now = self.pairs.get(pair, 0)
            if now == -count and now < least:
                return None
            if now == -count:
                return pair >> 32, pair & 0xFFFFFFFF
            if now > 0:  # stale entry: put it back with today's count
                heapq.heappush(self.heap, (-now, pair))
        return None

    def merge(self, pair: tuple[int, int], joined: int) -> None:
        """Replaces the pair by one token in every word that has it."""
        left, right = pair
        words = self.words
        heads = np.array(self.places.pop(left << 32 | right), np.int64)
        twice, head = join(words, heads, left, right, joined)
        if twice:
            self._change(right << 32 | left, joined << 32 | joined, twice, head)
        for other, count, head in taken(words.before):
            self._change(other << 32 | left, other << 32 | joined, count, head)
        for other, count, head in taken(words.after):
            self._change(right << 32 | other, joined << 32 | other, count, head)
        del self.pairs[left << 32 | right]

    def _change(self, old: int, new: int, count: int, head: int) -> None:
        """Counts a pair that has become another in words that a chain of places lists."""
        self.pairs[old] -= count
        self.pairs[new] = now = self.pairs.get(new, 0) + count
        self.places.setdefault(new, []).append(head)
        heapq.heappush(self.heap, (-now, new))
