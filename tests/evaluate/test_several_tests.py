"""Holm's correction against its definition and by hand; Mann-Whitney's U against all orders."""

from __future__ import annotations

import itertools
import random

import pytest

from tasklm.evaluate.several_tests import FEWEST, holm, mann_whitney


def test_holm_by_hand() -> None:
    # the smallest times 4, the next times 3 …, and never below one before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([0.2]) == [0.2] and holm([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_corrected_p_is_the_lowest_level_at_which_holm_rejects(seed: int) -> None:
    draw = random.Random(seed)
    values = [draw.random() ** 3 for _ in range(6)]
    corrected = holm(values)
    for level in [draw.random() for _ in range(50)]:
        rejected = set()
        for rank, place in enumerate(sorted(range(6), key=values.__getitem__)):
            if values[place] > level / (6 - rank):
                break
            rejected.add(place)
        assert rejected == {place for place, p in enumerate(corrected) if p <= level}


def exact(one: list[float], other: list[float]) -> float:
    """The share of all ways to deal the scores in which U is as far from its middle."""
    scores, middle = [*one, *other], len(one) * len(other) / 2

    def distance(places: tuple[int, ...]) -> float:
        rest = [score for place, score in enumerate(scores) if place not in places]
        ahead = sum(scores[place] > other for place in places for other in rest)
        return abs(ahead - middle)

    ways = list(itertools.combinations(range(len(scores)), len(one)))
    own = distance(tuple(range(len(one))))
    return sum(distance(way) >= own for way in ways) / len(ways)


@pytest.mark.parametrize("seed", range(4))
def test_mann_whitney_is_that_of_all_orders(seed: int) -> None:
    draw = random.Random(seed)
    one, other = ([draw.gauss(shift, 1) for _ in range(5)] for shift in (0.0, seed))
    assert mann_whitney(one, other) == pytest.approx(exact(one, other))


def test_too_few_seeds_show_nothing() -> None:
    assert mann_whitney([0.5] * FEWEST, [0.4] * (FEWEST - 1)) is None
    assert mann_whitney([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]) == pytest.approx(0.1)
