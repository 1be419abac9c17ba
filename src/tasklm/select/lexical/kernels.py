"""The compiled loops that make an index: text → words → postings. Compiled once and cached.

A term is known by a 64-bit hash of its UTF-8 bytes (FNV-1a with a final mix).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

SEPARATOR = "\0"  # separates the terms of a passage that was already split

_BASIS = np.uint64(14695981039346656037)
_PRIME = np.uint64(1099511628211)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_WIDE = np.uint8(1)  # no letter or digit has this code


def compiled(function: Callable[..., Any]) -> Any:
    """The function compiled without Python's lock, kept on disk between processes where that can be
    written.
    """
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba raises this if no cache folder is writable
        return numba.njit(nogil=True)(function)


class Folds(NamedTuple):
    """How characters fold, by code point: folded[at[c] : at[c + 1]] is UTF-8, nothing for what
    separates words.
    """

    hard: Any  # [65536] bool: needs more than a table
    at: Any  # [65537] int32
    folded: Any  # uint8


@compiled
def _code_point(text: Any, at: int) -> Any:
    """The (code point, bytes) of a character of two or three bytes."""
    lead = np.int64(text[at])
    second = np.int64(text[at + 1]) & 63
    if lead < 0xE0:
        return (lead & 31) << 6 | second, 2
    return (lead & 15) << 12 | second << 6 | (np.int64(text[at + 2]) & 63), 3


@compiled
def needs_help(text: Any, bounds: Any, hard: Any) -> Any:
    """Which passages contain a character that the table cannot fold."""
    hard_passages = np.zeros(bounds.size - 1, np.bool_)
    for passage in range(bounds.size - 1):
        at, end = bounds[passage], bounds[passage + 1]
        all_bits = np.uint8(0)
        for position in range(at, end):
            all_bits |= text[position]
        if all_bits < 0x80:
            continue
        while at < end:
            if text[at] < 0x80:
                at += 1
                continue
            if text[at] >= 0xF0:  # four bytes: beyond the table
                hard_passages[passage] = True
                break
            code, width = _code_point(text, at)
            if hard[code]:
                hard_passages[passage] = True
                break
            at += width
    return hard_passages


@compiled
def _finished(state: Any) -> Any:
    state ^= state >> _HALF
    state *= _MIX
    state ^= state >> _HALF
    return state if state != _NONE else _ONE  # 0 marks a free slot of the table


@compiled
def _grown(hashes: Any, numbers: Any) -> Any:
    """The hash table at twice the size."""
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
def _hash_words(
    text: Any, start: int, end: int, letters: Any, at_fold: Any, folded: Any, keys: Any
) -> int:
    """Fills keys with the hash of each word of text[start:end]; returns how many there are."""
    count = 0
    state, inside = _BASIS, False
    at = start
    while at < end:
        value = letters[text[at]]
        if value > _WIDE:
            state, inside = (state ^ np.uint64(value)) * _PRIME, True
            at += 1
            continue
        if value == _WIDE:
            code, width = _code_point(text, at)
            at += width
            first, last = at_fold[code], at_fold[code + 1]
            if first < last:
                for position in range(first, last):
                    state = (state ^ np.uint64(folded[position])) * _PRIME
                inside = True
                continue
        else:
            at += 1
        if inside:
            keys[count] = _finished(state)
            count += 1
            state, inside = _BASIS, False
    if inside:
        keys[count] = _finished(state)
        count += 1
    return count


@compiled
def _letters(at_fold: Any, folded: Any) -> Any:
    """Returns byte → folded byte, 0 for what separates words, _WIDE for part of a wider character;
    and of terms, where all is folded.
    """
    letters = np.full(256, _WIDE, np.uint8)
    for code in range(128):
        letters[code] = folded[at_fold[code]] if at_fold[code] < at_fold[code + 1] else 0
    return letters, np.arange(256).astype(np.uint8)


@compiled
def hash_words(text: Any, bounds: Any, split_already: Any, at_fold: Any, folded: Any) -> Any:
    """Returns (hash of each word, where each passage's words end)."""
    letters, as_it_is = _letters(at_fold, folded)
    passages = bounds.size - 1
    # a word takes a byte and a separator or the passage's end
    hashes = np.empty((text.size + passages) // 2 + 1, np.uint64)
    ends = np.empty(passages, np.int64)
    count = 0
    for passage in range(passages):
        table = as_it_is if split_already[passage] else letters
        start = bounds[passage]
        end = bounds[passage + 1]
        count += _hash_words(text, start, end, table, at_fold, folded, hashes[count:])
        ends[passage] = count
    return hashes[:count], ends


@compiled
def split(text: Any, bounds: Any, split_already: Any, at_fold: Any, folded: Any) -> Any:
    """Returns (hash of each distinct term, term number of each word, word bounds per passage) of
    one block of text.
    """
    letters, as_it_is = _letters(at_fold, folded)
    passages = bounds.size - 1
    longest = 0
    for passage in range(passages):
        longest = max(longest, bounds[passage + 1] - bounds[passage])
    keys = np.empty(longest // 2 + 1, np.uint64)
    words = np.empty((text.size + passages) // 2 + 1, np.int32)
    word_bounds = np.zeros(passages + 1, np.int64)
    hashes, numbers = np.zeros(1 << 16, np.uint64), np.empty(1 << 16, np.int32)
    terms = np.empty(1 << 15, np.uint64)
    word_count = term_count = 0
    for passage in range(passages):
        table = as_it_is if split_already[passage] else letters
        count = _hash_words(
            text, bounds[passage], bounds[passage + 1], table, at_fold, folded, keys
        )
        for word in range(count):
            key = keys[word]
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
        word_bounds[passage + 1] = word_count
    return terms[:term_count].copy(), words[:word_count], word_bounds


@compiled
def invert(terms: Any, words: Any, word_bounds: Any) -> Any:
    """The block's postings by ascending term hash: (hashes, offsets, passage numbers, term
    frequencies).
    """
    count = terms.size
    last = np.full(count, -1, np.int32)
    frequency = np.zeros(count, np.uint32)
    for passage in range(word_bounds.size - 1):
        for at in range(word_bounds[passage], word_bounds[passage + 1]):
            term = words[at]
            if last[term] != passage:
                last[term] = passage
                frequency[term] += np.uint32(1)
    order = np.argsort(terms)
    offsets = np.zeros(count + 1, np.uint32)
    place = np.empty(count, np.uint32)
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
                place[term] += np.uint32(1)
            else:
                tf[place[term] - np.uint32(1)] += np.uint32(1)
    return terms[order], offsets, passages, tf
