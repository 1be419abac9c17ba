"""Compiled loops: an open-addressing set of 64-bit keys and the search for shared runs of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_BASE = np.uint64(0xD6E8FEB86659FD93)  # odd, so that powers never vanish modulo 2^64


def compiled(function: Function) -> Function:
    """The function compiled without Python's lock, kept on disk between processes where a cache
    folder can be written.
    """
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba's way to say that no cache folder is writable
        return cast(Function, numba.njit(nogil=True)(function))


@compiled
def mix(value: np.uint64) -> np.uint64:
    """A well spread 64-bit hash of a 64-bit number (splitmix64)."""
    value = (value + _GOLDEN) & np.uint64(0xFFFFFFFFFFFFFFFF)
    value = (value ^ (value >> np.uint64(30))) * _MIX1
    value = (value ^ (value >> np.uint64(27))) * _MIX2
    return value ^ (value >> np.uint64(31))


@compiled
def insert_keys(table: Keys, keys: Keys, fresh: NDArray[np.bool_]) -> int:
    """Puts non-zero keys in the table, marks those that were not in it,
    returns how many those are.
    """
    mask = np.uint64(table.size - 1)
    added = 0
    for i in range(keys.size):
        slot = mix(keys[i]) & mask
        while table[slot] != np.uint64(0) and table[slot] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        fresh[i] = table[slot] == np.uint64(0)
        if fresh[i]:
            table[slot] = keys[i]
            added += 1
    return added


class KeySet:
    """A growing set of 64-bit keys that takes 11 to 23 bytes per key (a Python set of ints takes
    about 90).
    """

    def __init__(self, slots: int = 1 << 16) -> None:
        self._table = np.zeros(slots, dtype=np.uint64)
        self._count = 0

    def add(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the non-zero keys were new, counting the first of equal keys in `keys` only."""
        while (self._count + keys.size) * 10 > self._table.size * 7:
            old = self._table[self._table != 0]
            self._table = np.zeros(self._table.size * 2, dtype=np.uint64)
            insert_keys(self._table, old, np.zeros(old.size, dtype=np.bool_))
        fresh = np.zeros(keys.size, dtype=np.bool_)
        self._count += int(insert_keys(self._table, keys, fresh))
        return fresh


@compiled
def run_hash(ids: NDArray[np.int32] | Keys, start: int, length: int) -> np.uint64:
    """The polynomial hash of a run of word numbers or word hashes."""
    value = np.uint64(0)
    for i in range(start, start + length):
        value = value * _BASE + mix(np.uint64(ids[i]))
    return value


@compiled
def same_run(
    left: NDArray[np.int32], i: int, right: NDArray[np.int32], j: int, length: int
) -> bool:
    """Whether two runs consist of the same words."""
    for k in range(length):  # noqa: SIM110 (numba compiles no generators)
        if left[i + k] != right[j + k]:
            return False
    return True


@compiled
def fill_runs(
    ids: NDArray[np.int32],
    starts: Ints,
    lengths: NDArray[np.int32],
    hashes: Keys,
    places: Ints,
    sizes: NDArray[np.int32],
) -> None:
    """Files the runs `ids[start : start + length]` by hash in an open table; equal runs once,
    unequal ones side by side.
    """
    mask = np.uint64(places.size - 1)
    for r in range(starts.size):
        start, length = starts[r], lengths[r]
        value = run_hash(ids, start, length)
        slot = mix(value) & mask
        known = False
        while places[slot] >= 0 and not known:
            known = (
                hashes[slot] == value
                and sizes[slot] == length
                and same_run(ids, places[slot], ids, start, length)
            )
            slot = (slot + np.uint64(1)) & mask
        if not known:
            hashes[slot], places[slot], sizes[slot] = value, start, length


@compiled
def find_runs(
    ids: NDArray[np.int32],
    ends: Ints,
    run_lengths: NDArray[np.int32],
    task: NDArray[np.int32],
    hashes: Keys,
    places: Ints,
    sizes: NDArray[np.int32],
    first_places: Ints,
    first_sizes: NDArray[np.int32],
) -> None:
    """For each text `ids[ends[t-1] : ends[t]]` sets `first_places[t]` to the place in `task` of
    the first run it shares, or -1.

    Word number 0 stands for words that no task text has: no run crosses it. Equal hashes are
    compared word by word.
    """
    mask = np.uint64(places.size - 1)
    powers = np.empty(run_lengths.size, dtype=np.uint64)
    for k in range(run_lengths.size):
        power = np.uint64(1)
        for _ in range(run_lengths[k]):
            power *= _BASE
        powers[k] = power
    # prefix[i]: hash of the words since the last 0, up to word i
    prefix = np.zeros(ids.size + 1, dtype=np.uint64)
    start = 0
    for t in range(ends.size):
        first_places[t] = -1
        known = 0  # words since the last unknown one
        for i in range(start, ends[t]):
            if ids[i] == 0:
                known = 0
                prefix[i + 1] = np.uint64(0)
                continue
            known += 1
            prefix[i + 1] = (
                prefix[i] * _BASE + mix(np.uint64(ids[i])) if known > 1 else mix(np.uint64(ids[i]))
            )
            for k in range(run_lengths.size):
                length = run_lengths[k]
                if known < length:
                    break  # lengths rise
                value = prefix[i + 1] - (
                    prefix[i + 1 - length] * powers[k] if known > length else np.uint64(0)
                )
                slot = mix(value) & mask
                while places[slot] >= 0:
                    alike = hashes[slot] == value and sizes[slot] == length
                    if alike and same_run(task, places[slot], ids, i + 1 - length, length):
                        first_places[t], first_sizes[t] = places[slot], length
                        break
                    slot = (slot + np.uint64(1)) & mask
                if first_places[t] >= 0:
                    break
            if first_places[t] >= 0:
                break
        start = ends[t]
