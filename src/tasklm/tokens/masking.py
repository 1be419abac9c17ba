"""Masking: which tokens are replaced, and by what; drawn on the CPU, the same for every device and
split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

# step of the counter whose mixed values are the random numbers
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
HIDE = ("bert", "mask", "uniform", "unigram", "nothing")
NONE = -100  # answer of a position without a target: PyTorch's losses ignore it


@dataclass(frozen=True)
class MaskRule:
    """Which tokens may be picked, how many of them, and what replaces them.

    `hide`: "bert" makes 80 % of the picked tokens [MASK] and 10 % random ones, and keeps 10 %;
    "mask" always [MASK], "uniform" any token that is not special, "unigram" a token of the batch
    that is not special, "nothing" the token itself. `continues` (a bool for each token: it goes on
    with the word before it) has whole words picked, as far as they fit into the rate.
    """

    special: np.ndarray  # (types,) bool: tokens that are never picked
    rate: float
    mask: int  # the id of [MASK]
    types: int
    hide: str = "bert"
    continues: np.ndarray | None = None


def mask_rows(
    ids: np.ndarray, rule: MaskRule, seed: int, first: int = 0, rate: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids with some of each row's tokens hidden, the columns picked, and the answers there.

    `picked` and `answers` are (rows, places): columns in ascending order and the tokens that stood
    there; a row of fewer targets ends in column 0 with the answer NONE. One token of a row at least
    is picked. A row's draws depend only on the seed and its number (`first` is the number of the
    first), never on the other rows, except for "unigram". `rate`: instead of the rule's, which it
    may not exceed: that one decides the number of places.
    """
    places = max(1, round(rule.rate * ids.shape[1]))
    changed = ids.copy()
    picked = np.zeros((len(ids), places), np.int64)
    answers = np.full((len(ids), places), NONE, np.int64)
    whole = rule.continues is not None
    continues = np.zeros(0, np.bool_) if rule.continues is None else rule.continues
    _mask(
        ids,
        rule.special,
        rule.rate if rate is None else rate,
        rule.mask,
        rule.types,
        np.uint64(seed % 2**64),
        first,
        HIDE.index(rule.hide),
        whole,
        continues,
        changed,
        picked,
        answers,
    )
    return changed, picked, answers


@njit(cache=True, nogil=True)
def mix(state):  # type: ignore[no-untyped-def]
    """64 random bits of a counter: SplitMix64's output function (Steele et al., OOPSLA 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(cache=True, nogil=True)
def below(state, limit):  # type: ignore[no-untyped-def]
    """A random whole number below `limit`, which is far below 2^32."""
    return np.int64(((mix(state) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def _mask(  # type: ignore[no-untyped-def]
    ids, special, rate, mask, types, seed, first, hide, whole, continues, changed, picked, answers
):
    usable = np.empty(ids.shape[1], np.int64)
    for row in range(len(ids)):
        state = mix(seed + GOLDEN * np.uint64(first + row + 1))
        count = 0
        for column in range(ids.shape[1]):
            if not special[ids[row, column]]:
                usable[count] = column
                count += 1
        wanted = min(count, max(1, int(rate * count + 0.5)), picked.shape[1])
        if whole:
            state, wanted = _pick_words(ids[row], usable[:count], continues, wanted, state)
        else:
            for i in range(wanted):  # a shuffle that stops after the first `wanted`
                state += GOLDEN
                j = i + below(state, count - i)
                usable[i], usable[j] = usable[j], usable[i]
        chosen = np.sort(usable[:wanted])
        for i in range(wanted):
            column = chosen[i]
            picked[row, i], answers[row, i] = column, ids[row, column]
            state += GOLDEN
            draw = below(state, 10)
            if hide == 1 or (hide == 0 and draw < 8):
                changed[row, column] = mask
            elif hide == 0 and draw == 8:
                state += GOLDEN
                changed[row, column] = below(state, types)
            elif hide == 2 or hide == 3:
                token = np.int64(mask)
                while special[token]:  # ends: the picked tokens are not special
                    state += GOLDEN
                    token = below(state, types) if hide == 2 else ids.flat[below(state, ids.size)]
                changed[row, column] = token


@njit(cache=True, nogil=True)
def _pick_words(ids, usable, continues, wanted, state):  # type: ignore[no-untyped-def]
    """Puts the columns of random whole words at the front of `usable`; returns the state of the
    draws and how many columns these are.

    Words that would exceed `wanted` are skipped; if all would, the first one drawn is cut.
    """
    count = len(usable)
    starts = np.empty(count + 1, np.int64)
    words = 0
    for i in range(count):
        if i == 0 or usable[i] != usable[i - 1] + 1 or not continues[ids[usable[i]]]:
            starts[words] = i
            words += 1
    starts[words] = count
    order, columns = np.arange(words), usable.copy()
    taken = 0
    for i in range(words):
        state += GOLDEN
        j = i + below(state, words - i)
        order[i], order[j] = order[j], order[i]
        begin, end = starts[order[i]], starts[order[i] + 1]
        if taken + end - begin <= wanted:
            # one by one: Numba takes seconds to compile the copying of slices
            for column in columns[begin:end]:
                usable[taken] = column
                taken += 1
        if taken == wanted:
            break
    if taken == 0 and count > 0:
        for column in columns[starts[order[0]] :][:wanted]:
            usable[taken] = column
            taken += 1
    return state, taken


def uniform_rows(rows: int, places: int, seed: int, first: int = 0) -> np.ndarray:
    """Random numbers in [0, 1), (rows, places) float32, by the seed and the number of the row."""
    numbers = np.empty((rows, places), np.float32)
    _uniform(np.uint64(seed % 2**64), first, numbers)
    return numbers


@njit(cache=True, nogil=True)
def _uniform(seed, first, numbers):  # type: ignore[no-untyped-def]
    for row in range(len(numbers)):
        state = mix(
            mix(seed + GOLDEN * np.uint64(first + row + 1)) + np.uint64(1)
        )  # independent of the masks
        for place in range(numbers.shape[1]):
            state += GOLDEN
            numbers[row, place] = np.float32((mix(state) >> np.uint64(40)) * 2.0**-24)
