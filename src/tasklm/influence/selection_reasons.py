"""Why influence chose a passage: which task batches asked for it, with which scores, and where it
stood among the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasklm.errors import RunError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import read_selection
from tasklm.select.influence import COLUMNS, InfluenceScores
from tasklm.storage.checksums import require_whole
from tasklm.tasks.examples import Example


@dataclass
class TaskBatch:
    """Task examples that share one gradient and asked for a passage."""

    texts: list[str]
    labels: list[str]
    rank: int  # 0 = the candidate that helps this batch most
    # influence of the passage on the batch; of its unit, where candidates share a gradient
    score: float


@dataclass
class InfluenceReasons:
    """Why a candidate is in the selection by influence."""

    split: str  # whose examples asked
    best: float  # its highest influence on any batch
    batches: list[TaskBatch]  # best rank first
    batches_in_all: int
    k: int  # a batch asked for its k best candidates
    found_by: str  # the selector that found the candidates
    place: int  # among the candidates, 0 = the first
    candidates: int
    first_rank: int  # its best rank among what the selector found for an example
    first_score: float  # its score by that selector


def influence_reasons(
    folder: Path, number: int, settings: Select, examples: Sequence[Example], most: int
) -> InfluenceReasons:
    """Returns why the passage with this number in the corpus was chosen in a run folder, with at
    most `most` of the batches that asked.

    `examples` are those of the split that `settings.influence_on` names.
    """
    for name in ("candidates", "influence", "selected"):
        require_whole(folder / name)
    candidates = read_selection(
        folder / "candidates" / "selected.parquet", "number", "rank", "score"
    )
    scores = InfluenceScores(folder / "influence")
    together, task_together = settings.influence_batch, settings.influence_task_batch
    (found,) = np.nonzero(candidates["number"].to_numpy() == number)
    if (
        scores.units != -(-len(candidates) // together)
        or scores.tasks != -(-len(examples) // task_together)
        or not len(found)
    ):
        raise RunError(
            f"the scores in {folder} are not those of its "
            f"candidates and examples. Run: tasklm select {folder}"
        )
    place = int(found[0])
    k = 1 + int(
        read_selection(folder / "selected" / "selected.parquet", "rank")["rank"].to_numpy().max()
    )
    asked, best = askers_of(scores, place // together, k)
    batches = []
    for batch, rank, score in asked[:most]:
        own = examples[batch * task_together : (batch + 1) * task_together]
        batches.append(
            TaskBatch(
                [example.text for example in own],
                [str(example.label) for example in own],
                rank,
                score,
            )
        )
    first_rank = int(candidates["rank"][place].as_py())
    first_score = float(candidates["score"][place].as_py())
    found_by = settings.stages[0]
    about = (k, found_by, place, len(candidates), first_rank, first_score)
    return InfluenceReasons(settings.influence_on, best, batches, len(asked), *about)


def askers_of(
    scores: InfluenceScores, unit: int, k: int, columns: int = COLUMNS
) -> tuple[list[tuple[int, int, float]], float]:
    """Returns (task batch, rank, score) of all task batches with the unit among their k best, best
    rank first, and its best score.
    """
    asked: list[tuple[int, int, float]] = []
    best = -np.inf
    for start in range(0, scores.tasks, columns):
        found = scores.of_tasks(start, start + columns)
        own = found[:, unit]
        ranks = (found > own[:, None]).sum(1) + (found[:, :unit] == own[:, None]).sum(
            1
        )  # ties: the better candidate first
        asked += [
            (start + int(row), int(ranks[row]), float(own[row]))
            for row in np.flatnonzero(ranks < k)
        ]
        best = max(best, float(own.max()))
    return sorted(asked, key=lambda one: (one[1], one[0])), best
