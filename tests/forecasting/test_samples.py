"""Folds and nested samples: each example is held out once, samples are nested, near copies stay
apart.
"""

from __future__ import annotations

import numpy as np
import pytest

from tasklm.errors import DataError
from tasklm.forecasting.samples import FEWEST, SHARES, folds_of, shares_texts, text_keys
from tasklm.tasks.examples import Example


def texts(count: int, begin: int = 0) -> list[Example]:
    return [Example((f"text number {begin + place}",), "a") for place in range(count)]


@pytest.mark.parametrize("count", [FEWEST, 101, 1000])
def test_every_example_is_held_out_once_and_samples_are_nested(count: int) -> None:
    folds = list(folds_of(texts(count), texts(20, 5000)))
    held = np.concatenate([fold.held for fold in folds])
    assert sorted(held.tolist()) == list(range(count))
    for fold in folds:
        assert len(fold.samples) == len(SHARES)
        assert not set(fold.held.tolist()) & set(fold.samples[-1].tolist())
        assert len(fold.held) + len(fold.samples[-1]) == count
        for small, large in zip(fold.samples[:-1], fold.samples[1:], strict=True):
            assert set(small.tolist()) < set(large.tolist())


def test_folds_are_the_same_each_time() -> None:
    first, second = (list(folds_of(texts(80), texts(9, 500))) for _ in range(2))
    assert all(
        np.array_equal(one.held, other.held) for one, other in zip(first, second, strict=True)
    )


def test_neighbours_stay_together() -> None:
    for fold in folds_of(texts(1000), texts(20, 5000)):
        runs = {place // 25 for place in fold.held.tolist()}  # 1,000 examples in 40 runs
        assert len(fold.held) == 25 * len(runs)


def test_copies_of_what_is_held_out_are_left_out_of_the_rest_where_dev_has_none() -> None:
    train = [
        Example(
            (
                f"the << same >> text {place % 50}"
                if place % 2
                else f"The same [[ text {place % 50}",
            ),
            "a",
        )
        for place in range(200)
    ]
    dev = texts(20)
    assert shares_texts(train, dev)
    for fold in folds_of(train, dev):
        held = set().union(*(text_keys(train[place]) for place in fold.held))
        rest = set().union(*(text_keys(train[place]) for place in fold.samples[-1]))
        assert not held & rest


def test_texts_may_be_shared_where_dev_shares_them_too() -> None:
    train = [Example((f"premise {place % 50}", f"hypothesis {place}"), "a") for place in range(200)]
    dev = [Example((f"premise {place}", f"other hypothesis {place}"), "a") for place in range(20)]
    assert not shares_texts(train, dev)


def test_options_of_a_choice_are_no_texts_to_share() -> None:
    example = Example(("An article.", "what?", "yes", "no"), 0, options=("yes", "no"))
    assert text_keys(example) == {"anarticle", "what"}


def test_too_few_examples_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=f"{FEWEST - 1} training examples are too few.*tasklm fit"):
        list(folds_of(texts(FEWEST - 1), texts(5, 500)))
