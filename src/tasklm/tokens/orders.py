"""The order of predicting tokens: drawn on the CPU, the same for every device and split."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasklm.tokens.masking import GOLDEN, NONE, below, mix


def order_rows(
    ids: np.ndarray, pieces: np.ndarray, special: np.ndarray, rate: float, seed: int, first: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(order, picked, answers): a random order of each piece, the last `rate` to be predicted.

    `order` (rows, length) is 0 for the tokens that are only read, special ones among them, and
    counts the others of a piece from 1 on. `picked` and `answers` are (rows, places): the columns
    to predict and the tokens there; a row of fewer targets ends in column 0 with the answer NONE.
    Numbers are rounded along the row, so that many short pieces have their share together, and a
    row has one target at least. A target has something to read: one token of a piece without
    special tokens stays out. A row's draws depend on the seed and on its number alone (`first` is
    the number of the first), never on the other rows.
    """
    places = max(1, round(rate * ids.shape[1]))
    order = np.zeros(ids.shape, np.int64)
    picked = np.zeros((len(ids), places), np.int64)
    answers = np.full((len(ids), places), NONE, np.int64)
    _order(ids, pieces, special, rate, np.uint64(seed % 2**64), first, order, picked, answers)
    return order, picked, answers


@njit(cache=True, nogil=True)
def _order(ids, pieces, special, rate, seed, first, order, picked, answers):  # type: ignore[no-untyped-def]
    length = ids.shape[1]
    usable = np.empty(length, np.int64)
    for row in range(len(ids)):
        state = mix(seed + GOLDEN * np.uint64(first + row + 1))
        begin, seen, taken = 0, 0, 0
        while begin < length:
            end, count = begin, 0
            while end < length and pieces[row, end] == pieces[row, begin]:
                if pieces[row, end] != 0 and not special[ids[row, end]]:
                    usable[count] = end
                    count += 1
                end += 1
            seen += count
            due = min(max(1, int(rate * seen + 0.5)), picked.shape[1]) - taken
            wanted = min(due, count if count < end - begin else count - 1)
            for i in range(wanted):  # a shuffle that stops after the first `wanted`
                state += GOLDEN
                j = i + below(state, count - i)
                usable[i], usable[j] = usable[j], usable[i]
                column = usable[i]
                order[row, column] = i + 1
                picked[row, taken + i], answers[row, taken + i] = column, ids[row, column]
            taken += max(0, wanted)
            begin = end
