"""The compiled loops that search an index: postings → scores → the best of each query.

Scores are added as whole numbers. A posting counts int(weight · impact) + 1 units, where a query's weights are scaled
so that no sum can exceed 2³⁰ units; whole numbers add up the same in any order, so neither the number of threads, nor
how the work was cut, nor which terms were looked up late can change a score. A sum is off by less than `units_off`
units from the real score; `bm25_search` settles with exact scores whatever lies that close to the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasklm.select.bm25_kernels import compiled

RANGE = 1 << 13  # passages whose sums are held at a time: 32 KB, which stays in a core's nearest cache
TOP = float(1 << 30)  # units that a query's weights add up to at most
_LANES = 16  # sums looked at together when searching for candidates
_PATIENCE = 0.6  # share of the score needed that terms left for later may add: more saves sums and costs look-ups
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def units_off(terms: Any) -> Any:
    """Returns how far a sum over so many terms can be from the real score, in units: rounding down, + 1, and float32."""
    return terms + TOP * 2.0**-22


@compiled
def impacts(starts: Any, ends: Any, passages: Any, tf: Any, norms: Any, out: Any, parts: Any) -> None:
    """Fills out[posting] = tf / (tf + norm) for the wanted terms, and where each of their ranges of passages begins."""
    ranges = parts.shape[1] - 1
    for term in range(starts.size):
        part = 0
        parts[term, 0] = starts[term]
        for at in range(starts[term], ends[term]):
            passage = passages[at]
            while passage >= (part + 1) * RANGE:
                part += 1
                parts[term, part] = at
            frequency = np.float32(tf[at])
            out[at] = frequency / (frequency + norms[passage])
        for later in range(part + 1, ranges + 1):
            parts[term, later] = ends[term]


@compiled
def fill_rows(frequent: Any, starts: Any, ends: Any, passages: Any, tf: Any, impact: Any, rows: Any, highest: Any) -> None:
    """Fills, for each frequent term, a row of its frequency in every passage, and its highest impact."""
    for row in range(frequent.size):
        term = frequent[row]
        top = np.float32(0)
        for at in range(starts[term], ends[term]):
            rows[row, passages[at]] = tf[at]
            top = max(top, impact[at])
        highest[row] = top


@compiled
def keep_best(keys: Any, count: int, best: int) -> Any:
    """Moves the `best` highest of keys[:count] to the front, unsorted, and returns the lowest of them (quickselect)."""
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
def _left_for_later(first: int, last: int, terms: Any, weights: Any, row_of: Any, highest: Any, floor: int) -> Any:
    """Returns (how many of the query's first terms to look up late, what they can add at most).

    Queries have their most frequent terms first. Terms that together cannot lift a passage to the floor are left for
    later: no passage needs to be considered for them alone (MaxScore, Turtle and Flood 1995).
    """
    allowed = np.int64(_PATIENCE * floor)
    sum_of_tops: Any = np.int64(0)
    for at in range(first, last):
        row = row_of[terms[at]]
        if row < 0:
            return at - first, sum_of_tops
        top = np.int64(weights[at] * highest[row]) + 1
        if sum_of_tops + top > allowed:
            return at - first, sum_of_tops
        sum_of_tops += top
    return last - first, sum_of_tops


@compiled
def _completed(
    total: Any,
    passage: int,
    first: int,
    late: int,
    rest: Any,
    floor: int,
    terms: Any,
    weights: Any,
    row_of: Any,
    rows: Any,
    highest: Any,
    norm: Any,
) -> Any:
    """Returns the sum with the late terms looked up, or any sum not above the floor when they cannot lift it there."""
    for at in range(first + late - 1, first - 1, -1):
        if total + rest <= floor:
            return total
        row = row_of[terms[at]]
        rest -= np.int64(weights[at] * highest[row]) + 1
        if rows[row, passage]:
            frequency = np.float32(rows[row, passage])
            total += np.int64(weights[at] * (frequency / (frequency + norm))) + 1
    return total


@compiled
def score_block(
    first: int,
    last: int,
    query_offsets: Any,
    query_terms: Any,
    query_weights: Any,
    parts: Any,
    passages: Any,
    impact: Any,
    norms: Any,
    row_of: Any,
    rows: Any,
    highest: Any,
    banned: Any,
    base: int,
    best: int,
    keys: Any,
    counts: Any,
    floors: Any,
) -> None:
    """Scores one block for queries first…last and adds what may be among their `best` to their rows of `keys`.

    A key is the sum above the reversed passage number: keys order as wanted, ties by lower number. Passages come in
    ascending order, so a passage that only equals the lowest kept sum (the query's floor) has lost already.
    """
    size = banned.size
    sums = np.zeros(RANGE, np.int32)
    for query in range(first, last):
        start, end = query_offsets[query], query_offsets[query + 1]
        row, count, floor = keys[query], counts[query], floors[query]
        for part in range((size + RANGE - 1) // RANGE):
            late, rest = _left_for_later(start, end, query_terms, query_weights, row_of, highest, floor)
            for at in range(start + late, end):
                weight, term = query_weights[at], query_terms[at]
                for posting in range(parts[term, part], parts[term, part + 1]):
                    sums[passages[posting] & (RANGE - 1)] += np.int32(weight * impact[posting]) + np.int32(1)
            needed = max(floor - rest, 0)
            for group in range(0, RANGE, _LANES):
                top = np.int32(0)
                for lane in range(_LANES):
                    top = max(top, sums[group + lane])
                if top > needed:
                    for at in range(group, group + _LANES):
                        if sums[at] <= needed:
                            continue
                        passage = part * RANGE + at
                        total = np.int64(sums[at])
                        if late:
                            total = _completed(
                                total, passage, start, late, rest, floor, query_terms, query_weights, row_of, rows, highest, norms[passage]
                            )
                        if total > floor and not banned[passage]:
                            row[count] = (np.uint64(total) << _HALF) | (_LOW - np.uint64(base + passage))
                            count += 1
                            if count == row.size:
                                floor = np.int64(keep_best(row, count, best) >> _HALF)
                                count = best
                                needed = max(floor - rest, 0)
                for lane in range(_LANES):
                    sums[group + lane] = 0
        counts[query], floors[query] = count, floor


@compiled
def sort_best(first: int, last: int, best: int, keys: Any, counts: Any) -> None:
    """Puts the `best` highest keys of queries first…last in front, highest first, and cuts their counts to them."""
    for query in range(first, last):
        row, count = keys[query], counts[query]
        if count > best:
            keep_best(row, count, best)
            count = best
        row[:count] = np.sort(row[:count])[::-1]
        counts[query] = count


@compiled
def exact_scores(
    queries: Any,
    numbers: Any,
    query_offsets: Any,
    query_terms: Any,
    query_weights: Any,
    starts: Any,
    ends: Any,
    passages: Any,
    tf: Any,
    norms: Any,
    out: Any,
) -> None:
    """Fills out[i] with the double-precision score of passage numbers[i] of this block for queries[i]."""
    for pair in range(queries.size):
        total = 0.0
        passage = numbers[pair]
        for at in range(query_offsets[queries[pair]], query_offsets[queries[pair] + 1]):
            term = query_terms[at]
            low, high = np.int64(starts[term]), np.int64(ends[term])
            while low < high:
                middle = (low + high) >> 1
                if passages[middle] < passage:
                    low = middle + 1
                else:
                    high = middle
            if low < ends[term] and passages[low] == passage:
                frequency = np.float64(tf[low])
                total += query_weights[at] * (frequency / (frequency + norms[passage]))
        out[pair] = total
