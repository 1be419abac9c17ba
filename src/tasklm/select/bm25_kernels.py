"""The inner loops of BM25, compiled once and cached: words → postings, postings → scores, scores → the best k.

A term is known by a 64-bit hash of its UTF-8 bytes (FNV-1a with a final mix). Every loop walks passages and terms in a
fixed order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

SEPARATOR = "\0"  # stands between the terms of a passage that was split already

_BASIS = np.uint64(14695981039346656037)
_PRIME = np.uint64(1099511628211)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_LOW = np.uint64(0xFFFFFFFF)
_LANES = 16  # scores looked at together when searching for candidates


def compiled(function: Callable[..., Any]) -> Any:
    """Returns the function compiled without Python's lock, kept on disk between processes where that can be written."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba's way to say that no cache folder is writable
        return numba.njit(nogil=True)(function)


def _letters() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Returns byte → folded byte for ASCII letters and digits, 0 for what separates words."""
    table = np.zeros(256, np.uint8)
    for code in range(128):
        if chr(code).isalnum():
            table[code] = ord(chr(code).lower())
    return table


LETTERS = _letters()  # for ASCII text
ANY_BYTE = np.arange(256, dtype=np.uint8)  # for terms joined by SEPARATOR


@compiled
def _finished(state: Any) -> Any:
    state ^= state >> _HALF
    state *= _MIX
    state ^= state >> _HALF
    return state if state != _NONE else _ONE  # 0 marks a free slot of the table


@compiled
def _grown(hashes: Any, numbers: Any) -> Any:
    """Returns the hash table at twice the size."""
    size = hashes.size * 2
    mask = np.uint64(size - 1)
    new_hashes = np.zeros(size, np.uint64)
    new_numbers = np.empty(size, np.int32)
    for old in range(hashes.size):
        if hashes[old] != _NONE:
            slot = hashes[old] & mask
            while new_hashes[slot] != _NONE:
                slot = (slot + _ONE) & mask
            new_hashes[slot] = hashes[old]
            new_numbers[slot] = numbers[old]
    return new_hashes, new_numbers


@compiled
def split(text: Any, bounds: Any, split_already: Any, letters: Any, any_byte: Any) -> Any:
    """Returns (hash of each distinct term, term number of each word, word bounds per passage) of one block of text."""
    passages = bounds.size - 1
    words = np.empty((text.size + passages) // 2 + 1, np.int32)  # a word takes a byte and a separator or the passage's end
    word_bounds = np.zeros(passages + 1, np.int64)
    hashes, numbers = np.zeros(1 << 16, np.uint64), np.empty(1 << 16, np.int32)
    terms = np.empty(1 << 15, np.uint64)
    word_count = term_count = 0
    for passage in range(passages):
        table = any_byte if split_already[passage] else letters
        state, inside = _BASIS, False
        end = bounds[passage + 1]
        for at in range(bounds[passage], end + 1):
            byte = table[text[at]] if at < end else np.uint8(0)
            if byte != 0:
                state, inside = (state ^ np.uint64(byte)) * _PRIME, True
                continue
            if not inside:
                continue
            key = _finished(state)
            mask = np.uint64(hashes.size - 1)
            slot = key & mask
            while hashes[slot] != _NONE and hashes[slot] != key:
                slot = (slot + _ONE) & mask
            if hashes[slot] == _NONE:
                hashes[slot], numbers[slot], terms[term_count] = key, term_count, key
                words[word_count] = term_count
                term_count += 1
                if term_count == terms.size:  # the table is half full
                    hashes, numbers = _grown(hashes, numbers)
                    terms = np.concatenate((terms, np.empty(terms.size, np.uint64)))
            else:
                words[word_count] = numbers[slot]
            word_count += 1
            state, inside = _BASIS, False
        word_bounds[passage + 1] = word_count
    return terms[:term_count].copy(), words[:word_count], word_bounds


@compiled
def invert(terms: Any, words: Any, word_bounds: Any) -> Any:
    """Returns the block's postings by ascending term hash: (hashes, offsets, passage numbers, term frequencies)."""
    count = terms.size
    last = np.full(count, -1, np.int32)
    frequency = np.zeros(count, np.int64)
    for passage in range(word_bounds.size - 1):
        for at in range(word_bounds[passage], word_bounds[passage + 1]):
            term = words[at]
            if last[term] != passage:
                last[term] = passage
                frequency[term] += 1
    order = np.argsort(terms)
    offsets = np.zeros(count + 1, np.int64)
    place = np.empty(count, np.int64)
    for position in range(count):
        place[order[position]] = offsets[position]
        offsets[position + 1] = offsets[position] + frequency[order[position]]
    passages = np.empty(offsets[count], np.uint16)
    tf = np.empty(offsets[count], np.uint32)
    last[:] = -1
    for passage in range(word_bounds.size - 1):
        for at in range(word_bounds[passage], word_bounds[passage + 1]):
            term = words[at]
            if last[term] != passage:
                last[term] = passage
                passages[place[term]] = passage
                tf[place[term]] = 1
                place[term] += 1
            else:
                tf[place[term] - 1] += 1
    return terms[order], offsets, passages, tf


@compiled
def impacts(starts: Any, ends: Any, passages: Any, tf: Any, norms: Any, out: Any) -> None:
    """Fills out[posting] = tf / (tf + k1·(1 − b + b·dl/avgdl)) for the postings of the wanted terms."""
    for term in range(starts.size):
        for at in range(starts[term], ends[term]):
            frequency = np.float64(tf[at])
            out[at] = np.float32(frequency / (frequency + norms[passages[at]]))


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
def score_block(
    first: int,
    last: int,
    query_offsets: Any,
    query_terms: Any,
    query_weights: Any,
    starts: Any,
    ends: Any,
    passages: Any,
    impact: Any,
    banned: Any,
    base: int,
    best: int,
    keys: Any,
    counts: Any,
    floors: Any,
) -> None:
    """Scores one block for queries first…last and adds what may be among their `best` to their rows of `keys`.

    A key is the bits of the (positive) score above the reversed passage number: keys order as wanted, ties by lower
    number. Passages come in ascending order, so a passage that only equals the lowest kept score has lost already.
    Sums are taken in double precision: passages that tie on paper then tie here, whatever the order of their terms.
    """
    size = banned.size
    padded = (size + _LANES - 1) // _LANES * _LANES
    sums = np.zeros(padded, np.float64)
    scores = np.empty(padded, np.float32)
    bits = scores.view(np.uint32)
    for query in range(first, last):
        for at in range(query_offsets[query], query_offsets[query + 1]):
            weight = query_weights[at]
            term = query_terms[at]
            for posting in range(starts[term], ends[term]):
                sums[passages[posting]] += weight * impact[posting]
        for at in range(padded):
            scores[at] = np.float32(sums[at])
            sums[at] = 0
        row, count, floor = keys[query], counts[query], floors[query]
        for group in range(0, padded, _LANES):
            highest = np.uint32(0)
            for at in range(group, group + _LANES):
                highest = max(highest, bits[at])
            if highest <= floor:
                continue
            for at in range(group, min(group + _LANES, size)):
                if bits[at] > floor and not banned[at]:
                    row[count] = (np.uint64(bits[at]) << _HALF) | (_LOW - np.uint64(base + at))
                    count += 1
                    if count == row.size:
                        floor = np.uint32(keep_best(row, count, best) >> _HALF)
                        count = best
        counts[query], floors[query] = count, floor


@compiled
def drain(first: int, last: int, best: int, keys: Any, counts: Any, offsets: Any, passages: Any, scores: Any) -> None:
    """Writes the best keys of queries first…last, sorted, as passages and scores."""
    bits = scores.view(np.uint32)
    for query in range(first, last):
        row, count = keys[query], counts[query]
        if count > best:
            keep_best(row, count, best)
            count = best
        row = np.sort(row[:count])
        for at in range(count):
            key = row[count - 1 - at]
            passages[offsets[query] + at] = np.int64(_LOW - (key & _LOW))
            bits[offsets[query] + at] = np.uint32(key >> _HALF)
