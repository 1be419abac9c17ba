"""Learning a WordPiece vocabulary, the same one every time.

The trainer of `tokenizers` walks hash tables in an order that changes from process to process, so that ties between
pairs are broken differently and the same data gives another vocabulary. This one breaks ties by number.
"""

from __future__ import annotations

import heapq
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

from tokenizers import normalizers

PREFIX = "##"  # marks a piece that continues a word


def count_words(batches: Iterable[Sequence[str]], normalizer: normalizers.Normalizer) -> Counter[str]:
    """Returns how often each word occurs after normalising; punctuation marks are words of their own, as in BERT."""
    counts: Counter[str] = Counter()
    for texts in batches:
        counts.update(normalizer.normalize_str("\n".join(texts)).translate(_spaced_punctuation()).split())
    return counts


@cache
def _spaced_punctuation() -> dict[int, str]:
    characters = map(chr, range(sys.maxunicode + 1))
    marks = [c for c in characters if unicodedata.category(c).startswith("P") or (c.isascii() and c.isprintable() and not c.isalnum())]
    return {ord(mark): f" {mark} " for mark in marks}


def learn(counts: Counter[str], size: int, specials: Sequence[str], alphabet: int, least: int = 2) -> dict[str, int]:
    """Returns token → number: specials, characters, then merges of the most frequent neighbouring pair, one by one."""
    kept = _alphabet(counts, alphabet)
    words = sorted((word, count) for word, count in counts.items() if len(word) <= 100 and all(c in kept for c in word))
    first = sorted({word[0] for word, _ in words})
    later = sorted({character for word, _ in words for character in word[1:]})
    tokens = [*specials, *first, *(PREFIX + character for character in later)]
    number = {token: i for i, token in enumerate(tokens)}
    spelled = [[number[word[0]], *(number[PREFIX + character] for character in word[1:])] for word, _ in words]
    merger = _Merger(spelled, [count for _, count in words])
    while len(tokens) < size and (pair := merger.best(least)) is not None:
        left, right = (tokens[part] for part in pair)
        joined = left + right.removeprefix(PREFIX)
        if joined not in number:
            number[joined] = len(tokens)
            tokens.append(joined)
        merger.merge(pair, number[joined])
    return {token: i for i, token in enumerate(tokens)}


def _alphabet(counts: Counter[str], most: int) -> set[str]:
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    return set(sorted(characters, key=lambda character: (-characters[character], character))[:most])


class _Merger:
    """Words as lists of token numbers, with the count and the places of every neighbouring pair."""

    def __init__(self, words: list[list[int]], counts: list[int]) -> None:
        self.words, self.counts = words, counts
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.places: dict[tuple[int, int], set[int]] = {}
        for index, word in enumerate(words):
            for pair in pairwise(word):
                self.pairs[pair] += counts[index]
                self.places.setdefault(pair, set()).add(index)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(self.heap)

    def best(self, least: int) -> tuple[int, int] | None:
        """Returns the most frequent pair (the lowest numbers on a tie), or None when none is frequent enough."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            now = self.pairs[pair]
            if now == -count:
                return pair if now >= least else None
            if now > 0:  # stale entry: put it back with today's count
                heapq.heappush(self.heap, (-now, pair))
        return None

    def merge(self, pair: tuple[int, int], joined: int) -> None:
        """Replaces the pair by one token in every word that has it."""
        changed: Counter[tuple[int, int]] = Counter()
        for index in self.places.pop(pair):
            old, count = self.words[index], self.counts[index]
            new = _joined(old, pair, joined)
            for neighbours in pairwise(old):
                changed[neighbours] -= count
            for neighbours in pairwise(new):
                changed[neighbours] += count
                self.places.setdefault(neighbours, set()).add(index)
            self.words[index] = new
        for neighbours, difference in changed.items():
            self.pairs[neighbours] += difference
            if difference > 0:
                heapq.heappush(self.heap, (-self.pairs[neighbours], neighbours))
        del self.pairs[pair]


def _joined(word: list[int], pair: tuple[int, int], joined: int) -> list[int]:
    new, position = [], 0
    while position < len(word):
        if position + 1 < len(word) and (word[position], word[position + 1]) == pair:
            new.append(joined)
            position += 2
        else:
            new.append(word[position])
            position += 1
    return new
