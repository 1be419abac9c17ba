"""The compiled loops that search an index: postings → scores → the best of each query.

Scores are added as integers. A posting counts int(weight · impact) + 1 units, where a query's
weights are scaled so that no sum can exceed 2³⁰ units; integers give the same sum in any order, so
neither the number of threads, nor the division of the work, nor late look-ups can change a score. A
sum is off by less than `units_off` units from the real score; `search` decides with exact scores
whatever lies that close to the last position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasklm.select.lexical.best_keys import HALF, LOW, drop_low
from tasklm.select.lexical.kernels import compiled

# passages scored at a time for all queries: their sums stay in a core's nearest cache, their
# postings in the next
RANGE = 1 << 12
TOP = float(1 << 30)  # units that a query's weights add up to at most
# share of a range's passages from which on adding up a whole row beats following the postings
_DENSE = 0.08
_LANES = 64  # sums looked at together when searching for candidates
_MANY = 16  # look-ups per range beyond which fewer terms are left for later
_FEW = 4  # and below which more are


def units_off(terms: Any) -> Any:
    """How far a sum over so many terms can be from the real score, in units.

    A term is off by less than one unit for rounding down and adding one, and by five roundings of
    single precision (norm, denominator, quotient, weight, product), each of 2⁻²⁴; 2⁻²¹ of the
    highest possible sum is more than these together.
    """
    return terms + TOP * 2.0**-21


@compiled
def by_range(starts: Any, ends: Any, passages: Any, parts: Any) -> None:
    """Fills parts[range, term] = where the range's postings of the wanted term begin when all are
    laid out range by range.
    """
    ranges, terms = parts.shape[0], starts.size
    parts[:] = 0
    for term in range(terms):
        for at in range(starts[term], ends[term]):
            parts[passages[at] // RANGE, term] += np.uint32(1)
    total = np.uint32(0)
    for part in range(ranges):
        for term in range(terms):
            count = parts[part, term]
            parts[part, term] = total
            total += count
        parts[part, terms] = total


@compiled
def lay_out(
    starts: Any,
    ends: Any,
    passages: Any,
    tf: Any,
    norms: Any,
    parts: Any,
    places: Any,
    impacts: Any,
) -> None:
    """Fills, range by range and term by term, where in its range a passage stands and its impact tf
    / (tf + norm).
    """
    for term in range(starts.size):
        part, to = -1, np.uint32(0)
        for at in range(starts[term], ends[term]):
            passage = passages[at]
            if passage // RANGE != part:
                part = passage // RANGE
                to = parts[part, term]
            frequency = np.float32(tf[at])
            places[to] = passage % RANGE
            impacts[to] = frequency / (frequency + norms[passage])
            to += np.uint32(1)


@compiled
def fill_rows(
    frequent: Any, parts: Any, places: Any, impacts: Any, rows: Any, highest: Any
) -> None:
    """Fills rows[range, row] with the impact of each frequent term on each passage of the range,
    and its highest impact.
    """
    for part in range(parts.shape[0]):
        for row in range(frequent.size):
            for at in range(parts[part, frequent[row]], parts[part, frequent[row] + 1]):
                rows[part, row, places[at]] = impacts[at]
                highest[row] = max(highest[row], impacts[at])


@compiled
def clear_rows(frequent: Any, parts: Any, places: Any, rows: Any) -> None:
    """Sets back to zero what `fill_rows` filled: far less than all of it."""
    for part in range(parts.shape[0]):
        for row in range(frequent.size):
            for at in range(parts[part, frequent[row]], parts[part, frequent[row] + 1]):
                rows[part, row, places[at]] = 0


@compiled
def _left_for_later(
    first: int, last: int, terms: Any, weights: Any, row_of: Any, highest: Any, allowed: int
) -> Any:
    """Returns (how many of the query's first terms to look up late, what they can add at most).

    Queries have their most frequent terms first. Terms that together cannot lift a passage to the
    floor can be left for later: no passage needs to be considered for them alone (MaxScore, Turtle
    and Flood 1995).
    """
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
    at_passage: int,
    first: int,
    late: int,
    rest: Any,
    floor: int,
    terms: Any,
    weights: Any,
    row_of: Any,
    rows: Any,
    highest: Any,
) -> Any:
    """The sum with the late terms looked up, or any sum not above the floor when they cannot lift
    it there.
    """
    for at in range(first + late - 1, first - 1, -1):
        if total + rest <= floor:
            return total
        row = row_of[terms[at]]
        rest -= np.int64(weights[at] * highest[row]) + 1
        impact = rows[row, at_passage]
        if impact > 0:
            total += np.int64(np.int32(weights[at] * impact)) + 1
    return total


@compiled
def _add_up(
    first: int,
    last: int,
    terms: Any,
    weights: Any,
    part: Any,
    places: Any,
    impacts: Any,
    row_of: Any,
    rows: Any,
    sums: Any,
) -> None:
    """Adds the terms first…last of a query to the sums of one range of passages."""
    for at in range(first, last):
        weight, term = weights[at], terms[at]
        begin, end = part[term], part[term + 1]
        if end - begin > _DENSE * RANGE and row_of[term] >= 0:
            row = row_of[term]
            for passage in range(RANGE):
                impact = rows[row, passage]
                sums[passage] += np.int32(weight * impact) + np.int32(impact > 0)
        else:
            for posting in range(begin, end):
                sums[places[posting]] += np.int32(weight * impacts[posting]) + np.int32(1)


@compiled
def _collect(
    query: int,
    late: int,
    rest: Any,
    queries: Any,
    sums: Any,
    row_of: Any,
    rows: Any,
    highest: Any,
    banned: Any,
    base: int,
    best: int,
    candidates: Any,
) -> int:
    """Adds the passages of a range that may be among the query's best to its row; zeroes the sums;
    returns the look-ups made.
    """
    offsets, terms, weights = queries
    keys, counts, floors = candidates
    row, count, floor = keys[query], counts[query], floors[query]
    needed = np.int32(max(floor - rest, 0))
    looked_up = 0
    lanes = np.empty(_LANES + 1, np.int64)
    for group in range(0, RANGE, _LANES):
        above = np.int32(0)
        for lane in range(_LANES):
            above |= sums[group + lane] > needed
        if above:
            hits = 0
            for lane in range(_LANES):
                lanes[hits] = lane
                hits += sums[group + lane] > needed
            for hit in range(hits):
                at = group + lanes[hit]
                total = np.int64(sums[at])
                if late:
                    looked_up += 1
                    total = _completed(
                        total,
                        at,
                        offsets[query],
                        late,
                        rest,
                        floor,
                        terms,
                        weights,
                        row_of,
                        rows,
                        highest,
                    )
                if total > floor and not banned[at]:
                    row[count] = (np.uint64(total) << HALF) | (LOW - np.uint64(base + at))
                    count += 1
                    if count == row.size:
                        count, floor = drop_low(row, count, best)
                        needed = np.int32(max(floor - rest, 0))
    sums[:] = 0
    counts[query], floors[query] = count, floor
    return looked_up


@compiled
def score_block(
    first: int,
    last: int,
    queries: Any,
    parts: Any,
    places: Any,
    impacts: Any,
    row_of: Any,
    rows: Any,
    highest: Any,
    banned: Any,
    base: int,
    best: int,
    candidates: Any,
    patience: Any,
) -> None:
    """Scores one block for queries first…last and adds what may be among their `best` to the
    `candidates`.

    A key is the sum above the reversed passage number: keys order as wanted, ties by lower number.
    Passages come in ascending order, so a passage that only equals the lowest kept sum (the query's
    floor) has lost already. `patience` is the share of the floor that terms left for later may add:
    more saves sums and costs look-ups, so it follows these.
    """
    offsets, terms, weights = queries
    floors = candidates[2]
    sums = np.zeros(RANGE, np.int32)
    for part in range(parts.shape[0]):
        for query in range(first, last):
            start, end = offsets[query], offsets[query + 1]
            allowed = np.int64(patience[query] * floors[query])
            late, rest = _left_for_later(start, end, terms, weights, row_of, highest, allowed)
            dense = rows[part]
            _add_up(
                start + late, end, terms, weights, parts[part], places, impacts, row_of, dense, sums
            )
            looked_up = _collect(
                query,
                late,
                rest,
                queries,
                sums,
                row_of,
                dense,
                highest,
                banned[part * RANGE :],
                base + part * RANGE,
                best,
                candidates,
            )
            if looked_up > _MANY:
                patience[query] *= 0.8 if looked_up < 8 * _MANY else 0.2
            elif looked_up < _FEW:
                patience[query] = min(0.95, patience[query] * 1.1)


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
    """Fills out[i] with the double-precision score of passage numbers[i] of this block for
    queries[i].
    """
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
