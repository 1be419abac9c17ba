from __future__ import annotations

import numpy as np
import pytest

from tasklm.tokens.masking import NONE
from tasklm.tokens.sentence_pairs import FOLLOWS, SHORTEST, SWAPPED, pair_rows

CLS, SEP, PAD = 2, 3, 0


def packed(sizes: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pieces of these sizes; every token of all the text is another one."""
    ids, pieces = np.full((len(sizes), length), PAD), np.zeros((len(sizes), length), np.int64)
    token = 100
    for row, lengths in enumerate(sizes):
        column = 0
        for number, size in enumerate(lengths, 1):
            inner = size - 2
            ids[row, column : column + size] = [CLS, *range(token, token + inner), SEP]
            pieces[row, column : column + size] = number
            token, column = token + inner, column + size
    return ids, pieces


def parts_of(row: np.ndarray, first: int, length: int) -> tuple[list[int], list[int]]:
    """The two parts of a piece, without special tokens."""
    inner = row[first : first + length].tolist()
    assert inner[0] == CLS and inner[-1] == SEP and inner.count(SEP) == 2
    middle = inner.index(SEP)
    return inner[1:middle], inner[middle + 1 : -1]


SIZES = [[40, 24], [64], [30, 34], [16, 48], [64], [20, 44], [15, 49], [60]]


def all_pieces() -> list[tuple[int, int, int]]:
    """Returns row, column and size of each piece that is long enough."""
    found = [
        (row, sum(lengths[:number]), size)
        for row, lengths in enumerate(SIZES)
        for number, size in enumerate(lengths)
    ]
    return [piece for piece in found if piece[2] >= SHORTEST]


@pytest.mark.parametrize("seed", range(20))
def test_second_parts_follow_or_are_those_of_another_piece(seed: int) -> None:
    ids, pieces = packed(SIZES, 64)
    before = ids.copy()
    shown, segments, firsts, answers = pair_rows(ids, pieces, SEP, None, seed)
    assert np.array_equal(ids, before)
    asked = {
        (row, int(firsts[row, place])): int(answers[row, place])
        for row, place in np.argwhere(answers != NONE).tolist()
    }
    assert set(asked) == {(row, column) for row, column, _ in all_pieces()}
    assert sum(answer == SWAPPED for answer in asked.values()) == len(asked) // 4 * 2
    owner = {
        int(token): (row, column)
        for row, column, size in all_pieces()
        for token in ids[row, column + 1 : column + size - 1]
    }
    swaps = {}
    for row, column, size in all_pieces():
        first, second = parts_of(shown[row], column, size)
        assert first == ids[row, column + 1 : column + 1 + len(first)].tolist()
        assert 2 <= len(second) < size - 3 and second == list(
            range(second[0], second[0] + len(second))
        )
        cut = column + 2 + len(first)
        assert not segments[row, column:cut].any() and segments[row, cut : column + size].all()
        if asked[row, column] == FOLLOWS:
            assert second[0] == first[-1] + 1
        else:
            swaps[row, column] = owner[second[0]]
    assert all(other != own and swaps[other] == own for own, other in swaps.items())
    untouched = np.ones_like(ids, bool)
    for row, column, size in all_pieces():
        untouched[row, column : column + size] = False
    assert np.array_equal(shown[untouched], ids[untouched]) and not segments[untouched].any()


def test_swapped_second_parts_are_what_follows_in_the_other_piece() -> None:
    ids, pieces = packed(SIZES, 64)
    shown, _, firsts, answers = pair_rows(ids, pieces, SEP, None, 4)
    swapped = {
        (row, int(firsts[row, place])) for row, place in np.argwhere(answers == SWAPPED).tolist()
    }
    parts = {
        (row, column): parts_of(shown[row], column, size)
        for row, column, size in all_pieces()
        if (row, column) in swapped
    }
    last = {first[-1]: place for place, (first, _) in parts.items()}
    assert swapped and all(last[second[0] - 1] != place for place, (_, second) in parts.items())


def test_the_seed_decides_and_both_answers_are_as_frequent() -> None:
    ids, pieces = packed(SIZES * 8, 64)
    once, again, other = (pair_rows(ids, pieces, SEP, None, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first, second) for first, second in zip(once, again, strict=True))
    assert not np.array_equal(once[0], other[0])
    assert abs(int((once[3] == SWAPPED).sum()) - int((once[3] == FOLLOWS).sum())) <= 3


def test_second_parts_begin_with_a_word() -> None:
    ids, pieces = packed(SIZES, 64)
    continues = np.random.default_rng(0).random(ids.max() + 1) < 0.5
    parts = [
        pair_rows(ids, pieces, SEP, known, seed)[0]
        for seed in range(10)
        for known in (continues, None)
    ]
    seconds = [
        [parts_of(shown[row], column, size)[1][0] for row, column, size in all_pieces()]
        for shown in parts
    ]
    begins = [np.mean(~continues[tokens]) for tokens in seconds]
    assert (
        np.mean(begins[::2]) > 0.9 and np.mean(begins[1::2]) < 0.7
    )  # of two short pieces there may be no place where both have a word


def test_rows_of_padding_and_short_pieces_ask_nothing() -> None:
    ids, pieces = packed([[], [SHORTEST - 1, 5], [SHORTEST]], 32)
    shown, segments, firsts, answers = pair_rows(ids, pieces, SEP, None, 0)
    assert (
        np.array_equal(shown[:2], ids[:2])
        and not segments[:2].any()
        and (answers[:2] == NONE).all()
    )
    assert firsts[2, 0] == 0 and answers[2].tolist() == [
        FOLLOWS,
        NONE,
    ]  # alone it has nobody to swap with
