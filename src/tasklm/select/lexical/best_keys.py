"""The compiled loops that keep the best of a query's candidates.

A key is a candidate's sum above its reversed passage number, so that keys order as wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasklm.select.lexical.kernels import compiled

HALF = np.uint64(32)  # bits of the passage number
LOW = np.uint64(0xFFFFFFFF)


@compiled
def keep_best(keys: Any, count: int, best: int) -> Any:
    """Moves the `best` highest of keys[:count] to the front, unsorted, and returns the lowest of
    them (quickselect).
    """
    low, high, wanted = 0, count - 1, best - 1
    while low < high:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    lowest = keys[0]
    for at in range(1, best):
        lowest = min(lowest, keys[at])
    return lowest


@compiled
def drop_low(keys: Any, count: int, best: int) -> Any:
    """Drops of keys[:count] what is not among the `best` highest; returns (how many are left, a
    floor for sums).

    A little more than `best` may be left: the floor is the edge of a bin of sums. At least `best`
    sums reach it, so a later passage that does not exceed it has lost already.
    """
    lowest = highest = keys[0] >> HALF
    for at in range(1, count):
        lowest, highest = min(lowest, keys[at] >> HALF), max(highest, keys[at] >> HALF)
    bins = np.zeros(max(count // 4, 1), np.int32)
    shift = np.uint64(0)
    while (highest - lowest) >> shift >= np.uint64(bins.size):
        shift += np.uint64(1)
    for at in range(count):
        bins[((keys[at] >> HALF) - lowest) >> shift] += 1
    left, edge = 0, bins.size
    while left < best:
        edge -= 1
        left += bins[edge]
    if left - best > (count - best) // 8:  # crowded sums
        return best, np.int64(keep_best(keys, count, best) >> HALF)
    floor = lowest + (np.uint64(edge) << shift)
    to: Any = 0
    for at in range(count):
        key = keys[at]
        keys[to] = key
        to += (key >> HALF) >= floor
    return left, np.int64(floor)


@compiled
def cut(first: int, last: int, best: int, keys: Any, counts: Any) -> int:
    """Drops keys of queries first…last that are not among their `best`; returns the width of the
    widest row, others end in zeros.
    """
    widest = 0
    for query in range(first, last):
        if counts[query] > best:
            counts[query] = drop_low(keys[query], counts[query], best)[0]
        widest = max(widest, counts[query])
    for query in range(first, last):
        keys[query, counts[query] : widest] = 0
    return widest


@compiled
def unpack(keys: Any, counts: Any, scales: Any, numbers: Any, scores: Any) -> None:
    """Fills in the passages and scores of sorted keys, query after query; `scales` are units per
    score of each query.
    """
    begin = 0
    for query in range(counts.size):
        end = begin + counts[query]
        for at in range(counts[query]):
            numbers[begin + at] = np.int64(LOW - (keys[query, at] & LOW))
            scores[begin + at] = np.float32(np.int64(keys[query, at] >> HALF) / scales[query])
        _order_ties(numbers[begin:end], scores[begin:end])
        begin = end


@compiled
def _order_ties(numbers: Any, scores: Any) -> None:
    """Puts passages whose scores are equal once they are single precision in the order of their
    numbers.
    """
    first, wrong = 0, False
    for at in range(1, scores.size + 1):
        if at < scores.size and scores[at] == scores[at - 1]:
            wrong |= numbers[at] < numbers[at - 1]
            continue
        if wrong:
            numbers[first:at].sort()
        first, wrong = at, False
