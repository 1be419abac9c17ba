from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.tokens import masking
from tasklm.tokens.masking import NONE, MaskRule, mask_rows

TYPES, MASK = 200, 4
SPECIAL = np.arange(256) < 5  # the vocabulary's rows end at 200; the embedding is filled up


def text(rows: int, length: int, seed: int = 0) -> np.ndarray:
    """Rows of ordinary tokens between two special ones."""
    ids = np.random.default_rng(seed).integers(5, TYPES, (rows, length))
    ids[:, 0], ids[:, -1] = 2, 3
    return ids


def test_random_bits_are_splitmix64s() -> None:
    """The first numbers of the published generator for the seed 1234567: what its reference code
    prints.
    """
    golden = 0x9E3779B97F4A7C15
    published = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431)
    for number, wanted in enumerate(published, 1):
        assert int(masking.mix(np.uint64((1234567 + number * golden) % 2**64))) == wanted


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    rate=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**63 - 1),
    first=st.integers(0, 10**6),
)
def test_each_row_has_its_targets(lengths: list[int], rate: float, seed: int, first: int) -> None:
    ids = np.zeros((len(lengths), 32), np.int64)  # 0 is padding
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = text(1, length + 2, row)[0]
    before = ids.copy()
    shown, picked, answers = mask_rows(ids, MaskRule(SPECIAL, rate, MASK, TYPES), seed, first)
    assert np.array_equal(ids, before) and picked.shape == answers.shape == (
        len(lengths),
        max(1, round(rate * 32)),
    )
    for row, length in enumerate(lengths):
        count = min(length, max(1, int(rate * length + 0.5)))
        columns = picked[row, :count]
        assert (np.diff(columns) > 0).all() and not SPECIAL[ids[row, columns]].any()
        assert np.array_equal(answers[row, :count], ids[row, columns])
        assert (picked[row, count:] == 0).all() and (answers[row, count:] == NONE).all()
        untouched = np.delete(np.arange(32), columns)
        assert np.array_equal(shown[row, untouched], ids[row, untouched])


@settings(max_examples=30, deadline=None)
@given(
    begin=st.integers(0, 20),
    end=st.integers(0, 20),
    seed=st.integers(0, 2**64 - 1),
    first=st.integers(0, 2**40),
)
def test_a_rows_draws_depend_on_the_seed_and_its_number_alone(
    begin: int, end: int, seed: int, first: int
) -> None:
    ids = text(20, 40)
    whole = mask_rows(ids, MaskRule(SPECIAL, 0.15, MASK, TYPES), seed, first)
    some = mask_rows(ids[begin:end], MaskRule(SPECIAL, 0.15, MASK, TYPES), seed, first + begin)
    for part, all_of_it in zip(some, whole, strict=True):
        assert np.array_equal(part, all_of_it[begin:end])


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_rates_are_berts(rate: float) -> None:
    ids = text(20_000, 64)
    shown, picked, answers = mask_rows(ids, MaskRule(SPECIAL, rate, MASK, TYPES), 7)
    count = round(rate * 62)
    assert ((answers != NONE).sum(1) == count).all()
    seen, gold = (np.take_along_axis(array, picked, 1)[answers != NONE] for array in (shown, ids))
    assert np.array_equal(gold, answers[answers != NONE])
    total = len(gold)

    def within(share: float, wanted: float) -> bool:
        return abs(share - wanted) < 5 * (wanted * (1 - wanted) / total) ** 0.5

    drawn = seen[(seen != MASK) & (seen != gold)]
    by_chance = 0.1 * 2 / TYPES  # a random token that is the mask, or that is the answer
    assert within(float((seen == MASK).mean()), 0.8 + by_chance / 2) and within(
        float((seen == gold).mean()), 0.1 + by_chance / 2
    )
    assert within(len(drawn) / total, 0.1 - by_chance)
    counts = np.bincount(drawn, minlength=TYPES)
    assert len(counts) == TYPES and counts[MASK] == 0
    ordinary = np.delete(counts, MASK)[4:]
    assert _chi_square(ordinary, ordinary.mean(), ordinary.mean()) < _limit(len(ordinary))
    assert (
        abs(int(counts[:4].sum()) - 4 * ordinary.mean()) < 5 * (4 * ordinary.mean()) ** 0.5
    )  # special tokens are drawn too, as in BERT


def _chi_square(counts: np.ndarray, expected: float, variance: float) -> float:
    return float(((counts - expected) ** 2 / variance).sum())


def _limit(kinds: int) -> float:
    return kinds + 5 * (2 * kinds) ** 0.5  # mean and five deviations of chi-square


def test_every_column_and_every_pair_of_columns_is_picked_as_often() -> None:
    rows, columns, count = 20_000, 62, 9
    _, picked, answers = mask_rows(text(rows, 64), MaskRule(SPECIAL, 0.15, MASK, TYPES), 11)
    assert picked.shape == (rows, 10) and (answers[:, count:] == NONE).all()
    chosen = np.zeros((rows, 64), bool)
    np.put_along_axis(chosen, picked[:, :count], True, 1)
    chosen = chosen[:, 1:-1]
    share = count / columns
    assert _chi_square(chosen.sum(0), rows * share, rows * share * (1 - share)) < _limit(columns)
    together = (chosen.T.astype(np.float64) @ chosen)[np.triu_indices(columns, 1)]
    pair = share * (count - 1) / (columns - 1)
    assert _chi_square(together, rows * pair, rows * pair * (1 - pair)) < _limit(len(together))


def test_rows_and_seeds_draw_apart_from_one_another() -> None:
    rows, columns, count = 5000, 62, 9
    ids = np.repeat(text(1, 64), rows, 0)

    def chosen(seed: int, first: int = 0) -> np.ndarray:
        hidden = np.zeros((rows, 64), bool)
        np.put_along_axis(
            hidden,
            mask_rows(ids, MaskRule(SPECIAL, 0.15, MASK, TYPES), seed, first)[1][:, :count],
            True,
            1,
        )
        return hidden

    wanted, one = count * count / columns, chosen(3)
    deviation = (
        wanted * (1 - count / columns) * (columns - count) / (columns - 1) / rows
    ) ** 0.5  # of a hypergeometric mean
    for other in (np.roll(one, 1, 0), chosen(4), chosen(3 + 1_000_003), chosen(3, first=rows)):
        assert abs((one & other).sum(1).mean() - wanted) < 5 * deviation
