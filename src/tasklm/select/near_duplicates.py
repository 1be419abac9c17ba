"""Removes near copies from a selection, so that it does not contain ten versions of one page.

Two passages are compared by the Jaccard similarity of their sets of runs of three words (a shorter
passage is one run). Copies are searched among the passages kept so far by MinHash and banded hash
tables; matches are compared by the whole sets, so nothing is left out by mistake. A pair at exactly
the threshold shares no band at most once in 1000 times (at 0.8, with 25 bands of 5 hashes: once in
20,000), or is missed, once in 10,000 times, because its signatures agree too rarely; a more similar
pair is missed less often.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.base import Passages
from tasklm.corpus.kernels import Ints, Keys, compiled
from tasklm.corpus.minhash import MinHash, agreement_for, jaccard, runs_of_words
from tasklm.corpus.processes import results_in_order, usable_cores
from tasklm.select.base import Chosen
from tasklm.select.lexical.word_hashes import word_hashes
from tasklm.tracking import Tracker

RUN_WORDS = 3
_READ_AT_ONCE = 1024
_REMEMBERED = 4096  # sets of runs of kept passages, for those with many copies
# suspects compared as whole sets, best matches first; there are more only if pages share a template
_COMPARED = 64


def without_near_duplicates(
    chosen: Chosen, store: Passages, threshold: float, passages: int | None, tracker: Tracker
) -> Chosen:
    """The chosen passages, best first, without those whose similarity to a better kept one is
    `threshold` or more.

    Stops when `passages` are kept; threshold 0 leaves nothing out. Memory: about 500 bytes per
    passage to keep (at 0.8).
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"a similarity must be between 0 and 1, not {threshold}")
    most = len(chosen.passages[:passages])
    if threshold == 0:
        return _rows(chosen, np.arange(most))
    held, looked_at, started = _Kept(most, threshold), 0, time.monotonic()
    texts = (
        [store.text(number) for number in chosen.passages[start : start + _READ_AT_ONCE].tolist()]
        for start in range(0, len(chosen.passages), _READ_AT_ONCE)
    )
    threads = usable_cores()
    with (
        tracker.progress("near duplicates", total=most) as bar,
        ThreadPoolExecutor(threads) as pool,
    ):
        for batch in results_in_order(pool, held.signed, texts, threads) if most else ():
            before = held.count
            looked_at += held.take(store, chosen.passages, batch, looked_at)
            rate = looked_at / max(time.monotonic() - started, 1e-9)
            bar.advance(held.count - before, f"{rate:,.0f} passages/s")
            if held.count == most:
                break
    tracker.event(
        "near duplicates",
        threshold=threshold,
        passages=looked_at,
        kept=held.count,
        left_out=looked_at - held.count,
    )
    return _rows(chosen, held.table.positions[: held.count])


def _rows(chosen: Chosen, positions: Ints) -> Chosen:
    """Some of the chosen passages."""
    lengths = np.diff(chosen.matched_offsets)[positions]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    moves = np.repeat(chosen.matched_offsets[positions] - offsets[:-1], lengths)
    askers = moves + np.arange(offsets[-1])
    return Chosen(
        chosen.passages[positions],
        chosen.scores[positions],
        chosen.ranks[positions],
        offsets,
        chosen.matched_queries[askers],
    )


def _runs_of(texts: Sequence[str]) -> tuple[Keys, Ints]:
    words, ends = word_hashes(texts)
    return runs_of_words(words, ends, RUN_WORDS)


class _Table(NamedTuple):
    """The kept passages by the keys of their bands: per band, chains through the passages of a
    slot; 0 ends a chain.
    """

    positions: Ints  # [most] where among the chosen passages
    signatures: NDArray[np.uint16]  # [most, hashes] the low bits of the MinHash values
    heads: NDArray[np.int32]  # [bands, slots] kept passage + 1
    chains: NDArray[np.int32]  # [most, bands] kept passage + 1
    # [most] position + 1 of the last passage that was compared with this one
    stamps: NDArray[np.int32]


class _Batch(NamedTuple):
    """Texts that may be kept: their runs of words end to end, where each text's end, their MinHash
    values and the keys of their bands.
    """

    runs: Keys
    ends: Ints
    values: NDArray[np.uint32]  # [texts, hashes]
    keys: Keys  # [texts, bands]


class _Kept:
    """The passages kept so far, and the search for those that a further one may be a copy of."""

    def __init__(self, most: int, threshold: float) -> None:
        self.threshold, self.count, self.most = threshold, 0, most
        self.minhash = MinHash(threshold)
        bands, hashes = self.minhash.bands, self.minhash.hashes
        self.needed = agreement_for(threshold, hashes)
        slots = 1 << max(most - 1, 1).bit_length()
        self.table = _Table(
            np.empty(most, np.int64),
            np.empty((most, hashes), np.uint16),
            np.zeros((bands, slots), np.int32),
            np.empty((most, bands), np.int32),
            np.zeros(most, np.int32),
        )
        self.alike = np.empty((most, 2), np.int32)  # kept passage, hashes that agree
        self.runs_of_kept = functools.lru_cache(maxsize=_REMEMBERED)(
            lambda store, number: _runs_of([store.text(number)])[0]
        )

    def signed(self, texts: Sequence[str]) -> _Batch:
        """The texts made ready for comparison; changes nothing, so that threads can do it ahead."""
        runs, ends = _runs_of(texts)
        values, keys = self.minhash.sign(runs, ends)
        return _Batch(runs, ends, values, keys)

    def take(self, store: Passages, chosen: Ints, batch: _Batch, position: int) -> int:
        """Keeps the passages of the batch that are not copies; returns how many were examined
        before there were enough.
        """
        runs, ends, values, keys = batch
        at = 0
        while at < len(ends) and self.count < self.most:
            at, self.count, suspects = walk(
                self.table, self.count, at, position, ends, values, keys, self.needed, self.alike
            )
            if suspects:
                start = ends[at - 1] if at else 0
                own = runs[start : ends[at]]
                if not self._is_copy(own, self.alike[:suspects], store, chosen):
                    keep(self.table, self.count, position + at, values[at], keys[at])
                    self.count += 1
                at += 1
        return at

    def _is_copy(
        self, own: Keys, suspects: NDArray[np.int32], store: Passages, chosen: Ints
    ) -> bool:
        likely_first = suspects[np.lexsort((suspects[:, 0], -suspects[:, 1])), 0][:_COMPARED]
        numbers = chosen[self.table.positions[likely_first]]
        return any(
            jaccard(own, self.runs_of_kept(store, number)) >= self.threshold  # type: ignore[arg-type]
            for number in numbers.tolist()
        )


@compiled
def keep(table: _Table, count: int, position: int, values: NDArray[np.uint32], keys: Keys) -> None:
    """Files a passage as number `count` of the kept ones."""
    mask = np.uint64(table.heads.shape[1] - 1)
    table.positions[count] = position
    for one in range(values.size):
        table.signatures[count, one] = np.uint16(values[one] & np.uint32(0xFFFF))
    for band in range(keys.size):
        slot = keys[band] & mask
        table.chains[count, band] = table.heads[band, slot]
        table.heads[band, slot] = count + 1


@compiled
def find_alike(
    table: _Table,
    stamp: int,
    values: NDArray[np.uint32],
    keys: Keys,
    needed: int,
    alike: NDArray[np.int32],
) -> int:
    """Fills the kept passages that share a slot with this one and agree in `needed` hashes; returns
    how many.
    """
    mask = np.uint64(table.heads.shape[1] - 1)
    suspects = 0
    for band in range(keys.size):
        other = table.heads[band, keys[band] & mask] - 1
        while other >= 0:
            if table.stamps[other] != stamp:
                table.stamps[other] = stamp
                agreed = 0
                for one in range(values.size):
                    agreed += table.signatures[other, one] == np.uint16(
                        values[one] & np.uint32(0xFFFF)
                    )
                if agreed >= needed:
                    alike[suspects, 0], alike[suspects, 1] = other, agreed
                    suspects += 1
            other = table.chains[other, band] - 1
    return suspects


@compiled
def walk(
    table: _Table,
    count: int,
    at: int,
    position: int,
    ends: Ints,
    values: NDArray[np.uint32],
    keys: Keys,
    needed: int,
    alike: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Keeps passages of a batch from `at` on until one may be a copy; returns (where it stopped,
    kept, suspects found).
    """
    while at < ends.size and count < table.positions.size:
        if ends[at] > (ends[at - 1] if at > 0 else 0):  # a passage without words is not a copy
            suspects = find_alike(table, position + at + 1, values[at], keys[at], needed, alike)
            if suspects > 0:
                return at, count, suspects
            keep(table, count, position + at, values[at], keys[at])
        else:
            table.positions[count] = position + at
        count += 1
        at += 1
    return at, count, 0
