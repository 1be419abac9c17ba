"""Pieces of text cut in two for next-sentence prediction (BERT, arXiv 1810.04805).

A piece [CLS] text [SEP] becomes [CLS] first [SEP] second [SEP] of the same length: the text's last
token makes room. Half of the pieces swap their second parts with one another. Parts begin with a
whole word if the vocabulary marks words: half a word would give the answer away.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasklm.tokens.masking import GOLDEN, NONE, below, mix

SHORTEST = 16  # tokens of a piece, [CLS] and [SEP] among them, that is cut at all
FOLLOWS, SWAPPED = 0, 1  # BERT's numbers
_TRIES = 16  # positions that are tried for the start of a word


def pair_rows(
    ids: np.ndarray, pieces: np.ndarray, sep: int, continues: np.ndarray | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(ids, segments, firsts, answers) of rows (rows, length) of pieces; piece 0 is padding.

    `segments` is 1 in second parts. `firsts` and `answers` are (rows, places): columns of the
    pieces' [CLS], and FOLLOWS or SWAPPED; a row of fewer pieces ends in column 0 with the answer
    NONE. `continues` has a bool for each token: it goes on with the word before it.
    """
    changed, segments = ids.copy(), np.zeros_like(ids)
    places = max(1, ids.shape[1] // SHORTEST)
    firsts = np.zeros((len(ids), places), np.int64)
    answers = np.full((len(ids), places), NONE, np.int64)
    if continues is None:
        continues = np.zeros(0, np.bool_)
    _pair(ids, pieces, sep, continues, np.uint64(seed % 2**64), changed, segments, firsts, answers)
    return changed, segments, firsts, answers


@njit(cache=True, nogil=True)
def _pair(ids, pieces, sep, continues, seed, changed, segments, firsts, answers):  # type: ignore[no-untyped-def]
    bounds = _long_pieces(pieces)
    count, state = len(bounds), mix(seed + np.uint64(2))  # independent of the masks
    order = np.arange(count)
    for i in range(count):
        state += GOLDEN
        j = i + below(state, count - i)
        order[i], order[j] = order[j], order[i]
    swapped = count // 4 * 2  # half of the pieces, an even number
    i = 0
    while i < count:
        own = bounds[order[i]]
        other = bounds[order[i + 1]] if i < swapped else own
        state += GOLDEN
        size = _size_of_second(ids, own, other, continues, state)
        _write(ids, own, other, size, sep, changed, segments)
        if i < swapped:
            _write(ids, other, own, size, sep, changed, segments)
        i += 2 if i < swapped else 1
    written = np.zeros(len(ids), np.int64)  # pieces of each row so far
    answer_of = np.empty(count, np.int64)
    for i in range(count):
        answer_of[order[i]] = SWAPPED if i < swapped else FOLLOWS
    for piece in range(count):
        row = bounds[piece, 0]
        firsts[row, written[row]], answers[row, written[row]] = bounds[piece, 1], answer_of[piece]
        written[row] += 1


@njit(cache=True, nogil=True)
def _long_pieces(pieces):  # type: ignore[no-untyped-def]
    """Row, column of [CLS] and column of [SEP] of each piece that is long enough."""
    rows, length = pieces.shape
    bounds = np.empty((rows * (length // SHORTEST), 3), np.int64)
    count = 0
    for row in range(rows):
        first = 0
        for column in range(1, length + 1):
            if column < length and pieces[row, column] == pieces[row, first]:
                continue
            if pieces[row, first] > 0 and column - first >= SHORTEST:
                bounds[count, 0], bounds[count, 1], bounds[count, 2] = row, first, column - 1
                count += 1
            first = column
    return bounds[:count]


@njit(cache=True, nogil=True)
def _size_of_second(ids, own, other, continues, state):  # type: ignore[no-untyped-def]
    """The size of the second parts, the same for both pieces: from a quarter to three quarters of
    the shorter text, about.
    """
    text = min(own[2] - own[1], other[2] - other[1]) - 1
    size = text // 4 + below(state, text // 2)
    for smaller in range(min(_TRIES, size - 1)):
        if _begins_word(ids, own, size - smaller, continues) and _begins_word(
            ids, other, size - smaller, continues
        ):
            return size - smaller
    return size


@njit(cache=True, nogil=True)
def _begins_word(ids, piece, size, continues):  # type: ignore[no-untyped-def]
    return len(continues) == 0 or not continues[ids[piece[0], piece[2] - 1 - size]]


@njit(cache=True, nogil=True)
def _write(ids, own, other, size, sep, changed, segments):  # type: ignore[no-untyped-def]
    """Puts [SEP] and the second part of `other`, of `size` tokens, in the place of the last `size`
    + 1 tokens of `own`.
    """
    row, end = own[0], own[2]
    cut = end - 1 - size
    changed[row, cut] = sep
    segments[row, cut + 1 : end + 1] = 1
    for place in range(size):
        changed[row, cut + 1 + place] = ids[other[0], other[2] - 1 - size + place]
