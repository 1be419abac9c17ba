"""The compiled loop of learning a vocabulary: a pair of neighbouring tokens becomes one token in
every word that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.compiling import compiled_when_called

Ints = NDArray[np.int64]


class Neighbours(NamedTuple):
    """What stood beside the joined pairs, by token: how often, and the chain of places; all 0 and
    -1 between merges.
    """

    counts: Ints
    heads: Ints


class Words(NamedTuple):
    """Words as token numbers end to end, and chains of places: a place is a word and the next
    place, -1 ends a chain.
    """

    tokens: NDArray[np.int32]
    starts: Ints
    lengths: NDArray[np.int32]  # a word shrinks where it begins
    often: Ints
    place_word: NDArray[np.int32]
    place_next: Ints
    free: Ints  # [1] places taken
    before: Neighbours
    after: Neighbours


def words_of(
    tokens: NDArray[np.int32], starts: Ints, often: Ints, size: int
) -> tuple[Words, Ints, Ints, Ints]:
    """The words, and for every neighbouring pair its name (left << 32 | right), its count and its
    chain of places.

    Every merge of a pair in a word shortens it by one and adds at most two places, so room for all
    of them is known.
    """
    owner = np.repeat(np.arange(len(often), dtype=np.int32), np.diff(starts))
    inside = np.flatnonzero(owner[1:] == owner[:-1])
    names = tokens[inside].astype(np.int64) << 32 | tokens[inside + 1]
    order = np.argsort(names, kind="stable")
    names, words = names[order], owner[inside[order]]
    heads = np.flatnonzero(np.diff(names, prepend=-1))
    count = len(names)
    place_word, place_next = np.empty(3 * count, np.int32), np.empty(3 * count, np.int64)
    place_word[:count] = words
    place_next[:count] = np.arange(1, count + 1)
    if count:
        place_next[np.append(heads[1:], count) - 1] = -1
    before, after = (
        Neighbours(np.zeros(size, np.int64), np.full(size, -1, np.int64)) for _ in range(2)
    )
    lengths = np.diff(starts).astype(np.int32)
    split = Words(
        tokens, starts, lengths, often, place_word, place_next, np.array([count]), before, after
    )
    counts = np.empty(0, np.int64)
    if count:
        counts = np.add.reduceat(often[words], heads)
    return split, names[heads], counts, heads


def taken(neighbours: Neighbours) -> Iterator[tuple[int, int, int]]:
    """The (token, count, chain of places) of a merge, and makes ready for the next."""
    tokens = np.flatnonzero(neighbours.counts)
    counts, heads = neighbours.counts[tokens].tolist(), neighbours.heads[tokens].tolist()
    neighbours.counts[tokens], neighbours.heads[tokens] = 0, -1
    return zip(tokens.tolist(), counts, heads, strict=True)


@compiled_when_called
def join(words: Words, heads: Ints, left: int, right: int, joined: int) -> tuple[int, int]:
    """Puts `joined` in place of left, right in the words of the chains; what stood beside is in
    `before` and `after`.

    Returns how often two joined pairs are neighbours, and the chain of places of that.
    """
    twice, twice_head = 0, -1
    tokens, free = words.tokens, words.free[0]
    for head in heads:
        place = head
        while place >= 0:
            word, place = words.place_word[place], words.place_next[place]
            start = words.starts[word]
            end = words.starts[word] + words.lengths[word]
            count = words.often[word]
            read = write = start
            new = False  # whether the token before is a joined pair
            while read < end:
                token = tokens[read]
                if token == left and read + 1 < end and tokens[read + 1] == right:
                    if new:
                        twice += count
                        words.place_word[free], words.place_next[free] = word, twice_head
                        twice_head, free = free, free + 1
                    elif write > start:
                        neighbour = tokens[write - 1]
                        words.before.counts[neighbour] += count
                        words.place_word[free], words.place_next[free] = (
                            word,
                            words.before.heads[neighbour],
                        )
                        words.before.heads[neighbour], free = free, free + 1
                    tokens[write] = joined
                    new = True
                    read += 2
                else:
                    if new:
                        words.after.counts[token] += count
                        words.place_word[free], words.place_next[free] = (
                            word,
                            words.after.heads[token],
                        )
                        words.after.heads[token], free = free, free + 1
                    tokens[write] = token
                    new = False
                    read += 1
                write += 1
            words.lengths[word] = write - start
    words.free[0] = free
    return twice, twice_head
