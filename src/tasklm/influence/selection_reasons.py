"""Why influence selected a passage: the task batches it helps, their scores and its rank."""

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
    """Task examples that share one gradient and that a passage helps."""

    texts: list[str]
    labels: list[str]
    rank: int  # 0 = the candidate that helps this batch most
    # influence of the passage on the batch; of its unit, if candidates share a gradient
    score: float


@dataclass
class InfluenceReasons:
    """Why a candidate is in the selection by influence."""

    split: str  # of the batches
    best: float  # its highest influence on any batch
    batches: list[TaskBatch]  # best rank first
    batches_in_all: int
    k: int  # the k best candidates of each batch were selected
    found_by: str  # the selector that found the candidates
    place: int  # among the candidates, 0 = the first
    candidates: int
    first_rank: int  # its best rank among the candidates of an example
    first_score: float  # its score by that selector


def influence_reasons(
    folder: Path, number: int, settings: Select, examples: Sequence[Example], most: int
) -> InfluenceReasons:
    """Why a run selected the passage with this number, with at most `most` of the batches it helps.

    `examples` are those of the split that `settings.influence_on` names.
    """
    for name in ("candidates", "influence", "selected"):
        require_whole(folder / name)
    candidates = read_selection(
        folder / "candidates" / "selected.parquet", "number", "rank", "score"
    )
    scores = InfluenceScores(folder / "influence")
    together, task_together = settings.influence_batch, settings.influence_task_batch
    (places,) = np.nonzero(candidates["number"].to_numpy() == number)
    same_candidates = scores.units == -(-len(candidates) // together)
    same_examples = scores.tasks == -(-len(examples) // task_together)
    if not same_candidates or not same_examples or not len(places):
        raise RunError(
            f"the scores in {folder} do not match its candidates and examples. "
            f"Run: tasklm select {folder}"
        )
    place = int(places[0])
    selected = read_selection(folder / "selected" / "selected.parquet", "rank")
    k = 1 + int(selected["rank"].to_numpy().max())
    askers, best = askers_of(scores, place // together, k)
    batches = []
    for batch, rank, score in askers[:most]:
        own = examples[batch * task_together : (batch + 1) * task_together]
        texts, labels = [example.text for example in own], [str(example.label) for example in own]
        batches.append(TaskBatch(texts, labels, rank, score))
    return InfluenceReasons(
        split=settings.influence_on,
        best=best,
        batches=batches,
        batches_in_all=len(askers),
        k=k,
        found_by=settings.stages[0],
        place=place,
        candidates=len(candidates),
        first_rank=int(candidates["rank"][place].as_py()),
        first_score=float(candidates["score"][place].as_py()),
    )


def askers_of(
    scores: InfluenceScores, unit: int, k: int, columns: int = COLUMNS
) -> tuple[list[tuple[int, int, float]], float]:
    """The task batches with the unit among their k best, and its best score.

    Batches are (number, rank, score), best rank first.
    """
    askers: list[tuple[int, int, float]] = []
    best = -np.inf
    for start in range(0, scores.tasks, columns):
        of_tasks = scores.of_tasks(start, start + columns)
        own = of_tasks[:, unit]
        ties = of_tasks[:, :unit] == own[:, None]  # the better candidate comes first
        ranks = (of_tasks > own[:, None]).sum(1) + ties.sum(1)
        for row in np.flatnonzero(ranks < k):
            askers.append((start + int(row), int(ranks[row]), float(own[row])))
        best = max(best, float(own.max()))
    return sorted(askers, key=lambda one: (one[1], one[0])), best
