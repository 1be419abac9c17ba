"""Why influence chose a passage: against the ranks of all candidates, by sorting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasklm.errors import RunError
from tasklm.influence.selection_reasons import askers_of, influence_reasons
from tasklm.recipe.data_sections import Select
from tasklm.select.base import Chosen, write_selection
from tasklm.select.influence import CandidateTexts, InfluenceScores, choose
from tasklm.tasks.examples import Example
from tests.select.test_influence import Corpus, drawn, stored

EXAMPLES = [Example((f"example {number}",), f"label {number % 3}") for number in range(10)]


def sorted_ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every unit on every task batch, by sorting lists."""
    found = np.empty(scores.shape, np.int64)
    for task in range(scores.shape[1]):
        order = sorted(range(len(scores)), key=lambda unit: (-scores[unit, task], unit))
        found[order, task] = range(len(scores))
    return found


def test_askers_are_the_batches_with_the_unit_among_their_best(tmp_path: Path) -> None:
    scores = np.round(drawn(40, 70), 1)  # with ties
    made, ranks = stored(tmp_path, scores), sorted_ranks(scores)
    assert len(np.unique(scores[:, 0])) < 40
    for unit in (0, 17, 39):
        asked, best = askers_of(made, unit, 6, columns=9)
        expected = sorted(
            (int(ranks[unit, task]), task) for task in range(70) if ranks[unit, task] < 6
        )
        assert [(rank, task) for task, rank, _ in asked] == expected
        assert [score for *_, score in asked] == [scores[unit, task] for _, task in expected]
        assert best == scores[unit].max()


def made_run(
    folder: Path, scores: np.ndarray, together: int, task_together: int, candidates: int
) -> list[int]:
    """Writes candidates, scores and the selection of a run; returns the numbers of the candidates
    in the corpus.
    """
    for name in ("candidates", "selected"):
        (folder / name).mkdir()
    numbers = np.random.default_rng(2).permutation(1000)[:candidates].astype(np.int64)
    none = np.zeros(candidates + 1, np.int64), np.empty(0, np.int32)
    found = Chosen(
        numbers,
        np.linspace(9, 1, candidates, dtype=np.float32),
        (np.arange(candidates) // 4).astype(np.int32),
        *none,
    )
    write_selection(folder / "candidates" / "selected.parquet", Corpus(), found)
    chosen, _ = choose(
        stored(folder / "influence", scores),
        candidates,
        0.3,
        together,
        task_together,
        len(EXAMPLES),
    )
    texts = CandidateTexts(folder / "candidates" / "selected.parquet", chosen.passages)
    chosen.passages = texts.numbers
    write_selection(folder / "selected" / "selected.parquet", texts, chosen, "dev")
    return [int(number) for number in numbers]


@pytest.mark.parametrize(("together", "task_together"), [(1, 1), (4, 3)])
def test_a_chosen_passage_is_explained_by_what_chose_it(
    tmp_path: Path, together: int, task_together: int
) -> None:
    scores = drawn(-(-22 // together), -(-10 // task_together))
    numbers = made_run(tmp_path, scores, together, task_together, 22)
    settings = Select(
        method="bm25, influence", influence_batch=together, influence_task_batch=task_together
    )
    ranks = sorted_ranks(scores)
    for row in pq.read_table(tmp_path / "selected" / "selected.parquet").to_pylist():
        found = influence_reasons(tmp_path, row["number"], settings, EXAMPLES, 100)
        place = numbers.index(row["number"])
        unit = place // together
        assert (found.split, found.found_by, found.place, found.candidates) == (
            "dev",
            "bm25",
            place,
            22,
        )
        assert (found.first_rank, found.first_score) == (
            place // 4,
            pytest.approx(9 - 8 * place / 21, rel=1e-6),
        )
        assert (
            found.best == row["score"] == scores[unit].max()
            and found.batches[0].rank == row["rank"] == ranks[unit].min()
        )
        assert [number for batch in found.batches for number in _numbers(batch.texts)][
            : len(row["matched_queries"])
        ] == row["matched_queries"]
        for batch in found.batches:
            task = _numbers(batch.texts)[0] // task_together
            assert (batch.rank, batch.score) == (
                ranks[unit, task],
                scores[unit, task],
            ) and batch.rank < found.k
            assert (
                _numbers(batch.texts)
                == list(range(10))[task * task_together : (task + 1) * task_together]
            )
            assert batch.labels == [EXAMPLES[number].label for number in _numbers(batch.texts)]
        few = influence_reasons(tmp_path, row["number"], settings, EXAMPLES, 1)
        assert (
            few.batches == found.batches[:1]
            and few.batches_in_all == len(found.batches) == (ranks[unit] < found.k).sum()
        )


def _numbers(texts: list[str]) -> list[int]:
    return [int(text.removeprefix("example ")) for text in texts]


def test_scores_of_other_candidates_are_said(tmp_path: Path) -> None:
    numbers = made_run(tmp_path, drawn(22, 10), 1, 1, 22)
    with pytest.raises(RunError, match="tasklm select"):
        influence_reasons(tmp_path, numbers[0], Select(influence_batch=2), EXAMPLES, 5)
    with pytest.raises(RunError, match="tasklm select"):
        influence_reasons(tmp_path, numbers[0], Select(), EXAMPLES[:-1], 5)
    with pytest.raises(RunError, match="tasklm select"):
        influence_reasons(tmp_path, 1001, Select(), EXAMPLES, 5)
    assert InfluenceScores(tmp_path / "influence").units == 22
