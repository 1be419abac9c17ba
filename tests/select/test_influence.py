"""Choosing by stored influence: the arithmetic against brute force, and blocks that outlive their
process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasklm.console.progress import Bar
from tasklm.errors import RunError, TrainingError
from tasklm.select.base import ASKED_KEPT, Chosen, read_selection_texts, write_selection
from tasklm.select.influence import (
    COLUMNS,
    CandidateTexts,
    InfluenceScores,
    choose,
    finish_scores,
    score_blocks,
)


def stored(
    folder: Path, scores: np.ndarray, block: int = 7, columns: int = COLUMNS
) -> InfluenceScores:
    """Returns scores (units, task batches) written and read back, computed in another order than
    the units'.
    """
    folder.mkdir(exist_ok=True)
    order = np.random.default_rng(0).permutation(len(scores))
    sizes = np.ones(len(order), np.int64)
    score_blocks(folder, sizes, lambda start, stop: scores[order[start:stop]], (0, 1), Bar(), block)
    finish_scores(folder, order, scores.shape[1], block)
    return InfluenceScores(folder, columns)


def drawn(units: int, tasks: int, seed: int = 1) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(units, 1))  # some passages help everyone
    return (generator.normal(size=(units, tasks)) + shared).astype(np.float32)


def brute_force(scores: np.ndarray, wanted: int) -> tuple[list[int], int]:
    """The union of the k best of every task batch for the smallest k that reaches the wanted size,
    cut by score.
    """
    lists = [
        sorted(range(len(scores)), key=lambda unit: (-scores[unit, task], unit))
        for task in range(scores.shape[1])
    ]
    k = next(
        k
        for k in range(1, len(scores) + 1)
        if len({unit for one in lists for unit in one[:k]}) >= wanted
    )
    before = {unit for one in lists for unit in one[: k - 1]}
    last = sorted(
        {one[k - 1] for one in lists} - before, key=lambda unit: (-scores[unit].max(), unit)
    )
    return sorted([*before, *last[: wanted - len(before)]]), k


@pytest.mark.parametrize(
    ("units", "tasks", "share"),
    [(50, 7, 0.2), (50, 70, 0.5), (33, 1, 0.1), (40, 3, 1.0), (10, 5, 0.0001)],
)
def test_the_union_has_exactly_the_wanted_size_and_the_members_of_brute_force(
    tmp_path: Path, units: int, tasks: int, share: float
) -> None:
    scores = drawn(units, tasks)
    chosen, k = choose(stored(tmp_path, scores, columns=3), units, share, 1, 1, tasks)
    wanted = max(1, round(share * units))
    assert (sorted(chosen.passages.tolist()), k) == brute_force(scores, wanted)
    assert len(chosen.passages) == wanted
    ranks = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)
    np.testing.assert_array_equal(chosen.ranks, ranks.min(1)[chosen.passages])
    np.testing.assert_array_equal(chosen.scores, scores.max(1)[chosen.passages])
    assert (np.diff(chosen.ranks) >= 0).all()
    for place, passage in enumerate(chosen.passages):
        asked = chosen.matched_queries[
            chosen.matched_offsets[place] : chosen.matched_offsets[place + 1]
        ].tolist()
        expected = sorted(
            (int(ranks[passage, task]), task) for task in range(tasks) if ranks[passage, task] < k
        )
        assert asked == [task for _, task in expected][:ASKED_KEPT]


def test_a_smaller_share_is_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    scores = stored(tmp_path, drawn(60, 9))
    large, small = (choose(scores, 60, share, 1, 1, 9)[0].passages for share in (0.5, 0.1))
    np.testing.assert_array_equal(large[: len(small)], small)


def test_ties_go_to_the_better_candidate(tmp_path: Path) -> None:
    chosen, k = choose(stored(tmp_path, np.zeros((20, 4), np.float32)), 20, 0.25, 1, 1, 4)
    assert chosen.passages.tolist() == [0, 1, 2, 3, 4] and k == 5


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 1.0])
def test_units_of_several_candidates_are_cut_to_the_exact_size(
    tmp_path: Path, share: float
) -> None:
    scores = drawn(6, 4)
    made = stored(tmp_path, scores)
    chosen, k = choose(made, 22, share, 4, 3, 10)  # 22 candidates by 4, 10 examples by 3
    ranks = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)
    order = sorted(range(6), key=lambda unit: (ranks[unit].min(), -scores[unit].max(), unit))
    expected = [passage for unit in order for passage in range(4 * unit, min(22, 4 * unit + 4))]
    assert chosen.passages.tolist() == expected[: round(share * 22)]
    batches = [
        task for task in np.argsort(ranks[order[0]], kind="stable") if ranks[order[0], task] < k
    ]
    assert chosen.matched_queries[: chosen.matched_offsets[1]].tolist() == [
        i for b in batches for i in range(3 * b, 3 * b + 3) if i < 10
    ]


def test_scores_that_do_not_fit_the_candidates_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not match"):
        choose(stored(tmp_path, drawn(6, 4)), 25, 0.2, 4, 1, 4)


def test_a_killed_scoring_goes_on_where_it_was(tmp_path: Path) -> None:
    scores, order, sizes = drawn(20, 3), np.arange(20)[::-1], np.ones(20, np.int64)
    calls: list[int] = []

    def dies(start: int, stop: int) -> np.ndarray:
        calls.append(start)
        if start >= 12:
            raise KeyboardInterrupt
        return scores[order[start:stop]]

    with pytest.raises(KeyboardInterrupt):
        score_blocks(tmp_path, sizes, dies, (0, 1), Bar(), 6)

    def goes_on(start: int, stop: int) -> np.ndarray:
        calls.append(start)
        return scores[order[start:stop]]

    score_blocks(tmp_path, sizes, goes_on, (0, 1), Bar(), 6)
    assert calls == [0, 6, 12, 12, 18]
    finish_scores(tmp_path, order, 3, 6)
    np.testing.assert_array_equal(InfluenceScores(tmp_path).of_tasks(0, 3), scores.T)


def test_several_processes_take_blocks_of_their_own(tmp_path: Path) -> None:
    scores, order, sizes = drawn(20, 3), np.arange(20), np.ones(20, np.int64)
    taken: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in taken:

        def scores_of(start: int, stop: int, number: int = number) -> np.ndarray:
            taken[number].append(start)
            return scores[start:stop]

        score_blocks(tmp_path, sizes, scores_of, (number, 3), Bar(), 4)
    assert taken == {0: [0, 12], 1: [4, 16], 2: [8]}
    finish_scores(tmp_path, order, 3, 4)
    np.testing.assert_array_equal(InfluenceScores(tmp_path).of_tasks(1, 3), scores.T[1:])


def test_what_is_not_a_number_or_damaged_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite"):
        stored(tmp_path / "a", np.full((3, 2), np.nan, np.float32))
    stored(tmp_path / "b", drawn(20, 2))
    next(iter(sorted((tmp_path / "b").glob("block-*")))).write_bytes(b"no array")
    with pytest.raises(RunError, match="damaged"):
        InfluenceScores(tmp_path / "b")
    stored(tmp_path / "c", drawn(20, 2))
    next(iter(sorted((tmp_path / "c").glob("block-*")))).unlink()
    with pytest.raises(RunError, match="it is missing"):
        InfluenceScores(tmp_path / "c")


class Corpus:
    """Passages that say their own number."""

    def id(self, i: int, /) -> str:
        return f"id{i}"

    def text(self, i: int, /) -> str:
        return f"text {i}"

    def source(self, i: int, /) -> str:
        return f"s{i % 3}"


def test_candidates_are_read_back_by_their_rows(tmp_path: Path) -> None:
    count = 5000  # more than a row group
    numbers = np.random.default_rng(3).permutation(20_000)[:count].astype(np.int64)
    none = np.zeros(count + 1, np.int64), np.empty(0, np.int32)
    chosen = Chosen(numbers, np.zeros(count, np.float32), np.zeros(count, np.int32), *none)
    write_selection(tmp_path / "c.parquet", Corpus(), chosen)
    rows = np.array([4999, 0, 4500, 17, 4096, 4095])
    found = CandidateTexts(tmp_path / "c.parquet", rows)
    np.testing.assert_array_equal(found.numbers, numbers[rows])
    assert [found.text(int(number)) for number in found.numbers] == [
        f"text {number}" for number in numbers[rows]
    ]
    assert [(found.id(int(n)), found.source(int(n))) for n in found.numbers] == [
        (f"id{n}", f"s{n % 3}") for n in numbers[rows]
    ]
    assert sum(map(len, read_selection_texts(tmp_path / "c.parquet"))) == count
