"""Many queries at once against a BM25 index: blocks outside, queries inside.

The result is the exact top k. Integer sums find k + SPARE candidates per query (see `scoring`); if
they are too close to decide the last position, exact scores in double precision decide, and ties go
to the lower number. Only if more than SPARE passages lie within about a millionth of the score of
the last position do they count as ties.

Memory is bounded: queries are taken in batches, blocks one after the other, results wait in files.
A finished batch is kept, and within a batch the candidates are saved from time to time: an
interrupted search continues from there.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasklm.console.progress import Bar
from tasklm.select.base import Ranking, Workplace
from tasklm.select.lexical.candidates import (
    Candidates,
    is_done,
    joined,
    numbers_of,
    restore_open,
    row_width,
    save_open,
    sums_of,
    write_batch,
)
from tasklm.select.lexical.index import Block, Index, Statistics, hash_terms
from tasklm.select.lexical.scoring import (
    RANGE,
    TOP,
    by_range,
    clear_rows,
    exact_scores,
    fill_rows,
    lay_out,
    score_block,
    units_off,
)
from tasklm.select.lexical.text import BLOCK_PASSAGES
from tasklm.storage.files import digest

SPARE = 16  # candidates beyond k, in case sums cannot decide the last position
_BATCH_QUERIES = 1 << 16
_BATCH_WORDS = 1 << 23
_FREQUENT = 0.12  # share of the passages above which a term has its own row
_ROW_BYTES = 4 * BLOCK_PASSAGES
_SAVE_EVERY = 30.0  # seconds between records of an unfinished batch


@dataclass
class Scoring:
    """The two parameters of BM25 and the number of passages per query."""

    k1: float
    b: float
    k: int


@dataclass
class Queries:
    """Queries as rows of (term, weight), a query's most frequent terms first."""

    terms: npt.NDArray[np.uint64]  # distinct hashes, ascending
    offsets: npt.NDArray[np.int64]
    term_of: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float64]
    units: npt.NDArray[np.float32]  # weights in units of the sums
    scales: npt.NDArray[np.float64]  # [queries] units per score
    frequent: npt.NDArray[np.int64]  # terms that have rows

    def __len__(self) -> int:
        return len(self.offsets) - 1


def query_terms(
    queries: Sequence[Sequence[str]],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns (distinct term hashes, ascending; number of each word's term; where each query's
    words begin).
    """
    numbers: dict[str, int] = {}
    words = chain.from_iterable(queries)
    flat = array("q", (numbers.setdefault(term, len(numbers)) for term in words))
    terms, by_number = np.unique(hash_terms(list(numbers)), return_inverse=True)
    bounds = np.cumsum([0, *map(len, queries)], dtype=np.int64)
    return terms, by_number[np.frombuffer(flat, np.int64)], bounds


def prepare(
    queries: Sequence[Sequence[str]],
    terms: npt.NDArray[np.uint64],
    statistics: Statistics,
    memory: int,
) -> Queries:
    """The queries with each term's weight = how often the query has it · log(1 + (N − df + 0.5)/(df
    + 0.5)).

    `terms` and the frequencies in `statistics` go together and cover the queries; rows fill an
    eighth of the memory at most.
    """
    here, words, bounds = query_terms(queries)
    df = statistics.frequencies[np.searchsorted(terms, here)]
    query_of = np.repeat(np.arange(len(queries)), np.diff(bounds))
    pairs, counts = np.unique(query_of * max(len(here), 1) + words, return_counts=True)
    query_of, term_of = np.divmod(pairs, max(len(here), 1))
    known = df[term_of] > 0
    query_of, term_of, counts = query_of[known], term_of[known], counts[known]
    weights = counts * np.log1p((statistics.passages - df[term_of] + 0.5) / (df[term_of] + 0.5))
    frequent = np.flatnonzero(df > _FREQUENT * statistics.passages)
    most_frequent = frequent[np.argsort(-df[frequent], kind="stable")]
    frequent = np.sort(most_frequent[: memory // 8 // _ROW_BYTES])
    has_row = np.isin(term_of, frequent)
    order = np.lexsort((term_of, weights, ~has_row, query_of))
    query_of, term_of, weights = query_of[order], term_of[order], weights[order]
    totals = np.bincount(query_of, weights, len(queries))
    scales = 2.0 ** np.floor(np.log2(TOP / np.where(totals > 0, totals, 1.0)))
    offsets = np.searchsorted(query_of, np.arange(len(queries) + 1)).astype(np.int64)
    units = (weights * scales[query_of]).astype(np.float32)
    return Queries(here, offsets, term_of.astype(np.int32), weights, units, scales, frequent)


def norms_of(block: Block, statistics: Statistics, scoring: Scoring) -> npt.NDArray[np.float64]:
    """Returns k1·(1 − b + b·dl/avgdl) of each passage."""
    relative = block.lengths / statistics.average_length
    return np.asarray(scoring.k1 * (1 - scoring.b + scoring.b * relative), np.float64)


class Scorer:
    """Scores blocks for the same queries; holds the arrays that every block needs again."""

    def __init__(self, queries: Queries, candidates: Candidates) -> None:
        self.queries, self.candidates = queries, candidates
        self._rows = np.zeros((0, len(queries.frequent), RANGE), np.float32)
        self._row_of = np.full(len(queries.terms), -1, np.int32)
        self._row_of[queries.frequent] = np.arange(len(queries.frequent))

    def add(
        self, block: Block, banned: npt.NDArray[np.bool_], norms: npt.NDArray[np.float64]
    ) -> None:
        """Adds the block's candidates; `banned` and `norms` are of the block's passages."""
        queries, candidates = self.queries, self.candidates
        starts, ends = block.find(queries.terms)
        parts = np.empty((-(-len(block.lengths) // RANGE), len(starts) + 1), np.uint32)
        by_range(starts, ends, block.passages, parts)
        wanted = int(parts[-1, -1]) if len(starts) else 0
        places, impacts = np.empty(wanted, np.uint16), np.empty(wanted, np.float32)
        lay_out(
            starts, ends, block.passages, block.tf, norms.astype(np.float32), parts, places, impacts
        )
        if len(self._rows) < len(parts):
            self._rows = np.zeros((len(parts), len(queries.frequent), RANGE), np.float32)
        highest = np.zeros(len(queries.frequent), np.float32)
        fill_rows(queries.frequent, parts, places, impacts, self._rows, highest)
        weighted_terms = (queries.offsets, queries.term_of, queries.units)
        best_so_far = (candidates.keys, candidates.counts, candidates.floors)

        def score(first: int, last: int) -> None:
            score_block(
                first,
                last,
                weighted_terms,
                parts,
                places,
                impacts,
                self._row_of,
                self._rows,
                highest,
                banned,
                block.start,
                candidates.best,
                best_so_far,
                candidates.patience,
            )

        candidates.share_out(score)
        clear_rows(queries.frequent, parts, places, self._rows)


@dataclass
class Close:
    """Candidates too close to the last place for whole-number sums, query after query: which query,
    where in its row, which passage.
    """

    query: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]


def too_close(candidates: Candidates, queries: Queries, k: int) -> Close:
    """The candidates, of sorted rows, among which exact scores must choose; a query's stand side by
    side.
    """
    nothing = np.empty(0, np.int64)
    close_ones, places, numbers = [nothing], [nothing], [nothing]
    slack = 2 * units_off(np.diff(queries.offsets))
    more = np.flatnonzero(candidates.counts > k)
    unclear = nothing
    if candidates.best > k:
        last_sums, next_sums = sums_of(candidates.keys[more, k - 1 : k + 1].T)
        unclear = more[last_sums - next_sums <= slack[more]]
    for query in unclear.tolist():
        sums = sums_of(candidates.keys[query, : candidates.counts[query]])
        last = sums[k - 1]
        if len(sums) == candidates.best and last - sums[-1] <= slack[query]:
            continue  # a crowd of ties
        near = np.flatnonzero(np.abs(sums - last) <= slack[query])
        close_ones.append(np.full(len(near), query))
        places.append(near)
        numbers.append(numbers_of(candidates.keys[query, near]))
    return Close(np.concatenate(close_ones), np.concatenate(places), np.concatenate(numbers))


def exact(
    block: Block,
    close: Close,
    queries: Queries,
    norms: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
) -> None:
    """Fills in the exact scores of those of the close passages that are in this block."""
    here = np.flatnonzero((close.number >= block.start) & (close.number < block.stop))
    if not len(here):
        return
    starts, ends = block.find(queries.terms)
    scores = np.empty(len(here))
    exact_scores(
        close.query[here],
        close.number[here] - block.start,
        queries.offsets,
        queries.term_of,
        queries.weights,
        starts,
        ends,
        block.passages,
        block.tf,
        norms,
        scores,
    )
    out[here] = scores


def settle(candidates: Candidates, close: Close, scores: npt.NDArray[np.float64], k: int) -> None:
    """Cuts every row to k, the close ones chosen by exact score, then lower number."""
    firsts = np.flatnonzero(np.diff(close.query, prepend=-1)).tolist()
    for first, last in pairwise([*firsts, len(close.query)]):
        row, begin = candidates.keys[close.query[first]], close.place[first]
        order = np.lexsort((close.number[first:last], -scores[first:last]))
        row[begin:k] = row[begin + np.sort(order[: k - begin])]
    np.minimum(candidates.counts, k, out=candidates.counts)


def search(
    index: Index,
    queries: Sequence[Sequence[str]],
    banned: npt.NDArray[np.bool_],
    scoring: Scoring,
    place: Workplace,
) -> Ranking:
    """Each query's k best passages that are not banned."""
    allowed = index.passages - int(np.count_nonzero(banned))
    best = min(scoring.k + SPARE, allowed)
    batches = list(batches_of(queries, row_width(best, allowed), place.memory))
    terms, folder = terms_and_folder(queries, banned, scoring, batches, index.key, place)
    job = _Search(index, banned, scoring, index.statistics(terms))
    with (
        place.tracker.progress("search", total=len(queries) * max(index.count, 1)) as bar,
        ThreadPoolExecutor(place.threads) as pool,
    ):
        for number, (first, last) in enumerate(batches):
            if is_done(folder, number):
                bar.advance((last - first) * index.count)
                continue
            prepared = prepare(queries[first:last], terms, job.statistics, place.memory)
            candidates = Candidates(len(prepared), best, allowed, place.threads, pool)
            job.fill(candidates, prepared, folder / f"open-{number:05d}", bar)
            write_batch(folder, number, candidates, prepared.scales)
    return joined(folder, len(batches))


def terms_and_folder(
    queries: Sequence[Sequence[str]],
    banned: npt.NDArray[np.bool_],
    scoring: Scoring,
    batches: Sequence[tuple[int, int]],
    corpus: str,
    place: Workplace,
) -> tuple[npt.NDArray[np.uint64], Path]:
    """The distinct terms of all queries, and the folder where this search keeps its results."""
    terms, words, bounds = query_terms(queries)
    hasher = hashlib.blake2b(digest_size=12)
    for part in (terms, words, bounds, np.ascontiguousarray(banned)):
        hasher.update(part.data)
    key = digest([hasher.hexdigest(), scoring.k, scoring.k1, scoring.b, batches, corpus])
    folder = place.scratch / f"search-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    return terms, folder


def batches_of(
    queries: Sequence[Sequence[str]], width: int, memory: int
) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of queries whose candidates fit into a sixth of the memory: writing
    them down takes more than that again.
    """
    most = min(max(1, memory // 6 // (8 * width)), _BATCH_QUERIES)
    first, words = 0, 0
    for number, query in enumerate(queries):
        if number > first and (number - first == most or words + len(query) > _BATCH_WORDS):
            yield first, number
            first, words = number, 0
        words += len(query)
    if len(queries) > first:
        yield first, len(queries)


@dataclass
class _Search:
    """The shared state of a search's batches."""

    index: Index
    banned: npt.NDArray[np.bool_]
    scoring: Scoring
    statistics: Statistics

    def fill(self, candidates: Candidates, queries: Queries, record: Path, bar: Bar) -> None:
        """Finds each query's k best passages; continues an interrupted search from its record."""
        index, scoring = self.index, self.scoring
        done = restore_open(record, candidates)
        bar.advance(done * len(queries))
        started = saved = time.monotonic()
        scored, passages, scorer = 0, 0, Scorer(queries, candidates)
        for block in index.blocks(done):
            banned = np.ascontiguousarray(self.banned[block.start : block.stop])
            scorer.add(block, banned, norms_of(block, self.statistics, scoring))
            done += 1
            scored += len(queries)
            passages += block.stop - block.start
            seconds = max(time.monotonic() - started, 1e-9)
            speed = f"{passages / seconds:,.0f} passages/s"
            bar.advance(len(queries), f"{speed}, {scored / index.count / seconds:,.0f} queries/s")
            if time.monotonic() - saved > _SAVE_EVERY and done < index.count:
                save_open(record, candidates, done)
                saved = time.monotonic()
        candidates.sort()
        close = too_close(candidates, queries, scoring.k)
        scores = np.zeros(len(close.query))
        if len(scores):
            for block in index.blocks():
                exact(block, close, queries, norms_of(block, self.statistics, scoring), scores)
        settle(candidates, close, scores, scoring.k)
