"""Influence selection (ISS, arXiv 2305.12816): the passages that most help the task, chosen from
the scores of candidates.

The scores are computed elsewhere (`influence/scores.py`: products of gradients). Here they are
stored block by block, so that a killed run continues and another share costs nothing, and the
passages are chosen: for every task batch its k best candidates, with the k whose union has the
wanted size.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tasklm.console.progress import Bar
from tasklm.errors import DamagedError, TrainingError
from tasklm.select.base import ASKED_KEPT, Chosen, selection_is_clear
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import damaged, read_json, write_bytes, write_json

FORMAT = 2  # of what the folder of scores holds
BLOCK = 1024  # units whose scores are written at a time
COLUMNS = 32  # task batches that are ranked at a time
_NEVER = np.iinfo(np.int32).max

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def score_blocks(
    folder: Path,
    sizes: Ints,
    scores_of: Callable[[int, int], Floats],
    part: tuple[int, int],
    bar: Bar,
    block: int = BLOCK,
) -> None:
    """Computes and writes the missing blocks; of several processes (`part`: number, count) each
    does its own.

    `sizes` is the amount of work of each unit, and `scores_of(start, stop)` returns the scores
    (units, task batches) of a range. A block is written atomically, so it is done exactly when its
    file exists.
    """
    number, processes = part
    for start in range(number * block, len(sizes), processes * block):
        stop, path = min(start + block, len(sizes)), _block(folder, start)
        if not _is_whole(path, stop - start):
            scores = np.asarray(scores_of(start, stop), np.float32)
            if not np.isfinite(scores).all():
                remedy = (
                    "Lower --train.learning_rate or --select.influence_steps, "
                    "or use --hardware.precision fp32."
                )
                raise TrainingError(f"the gradients of the scoring model are not finite. {remedy}")
            content = io.BytesIO()
            by_task = np.ascontiguousarray(scores.T)  # a task batch's scores lie together
            np.save(content, by_task, allow_pickle=False)
            write_bytes(path, content.getvalue())
        bar.advance(int(sizes[start:stop].sum()))


def finish_scores(folder: Path, order: Ints, tasks: int, block: int = BLOCK) -> None:
    """Writes the description of the blocks once all exist."""
    np.save(folder / "order.npy", order.astype(np.int64), allow_pickle=False)
    write_json(
        folder / "scores.json",
        {"format": FORMAT, "units": len(order), "task_batches": tasks, "block": block},
    )


def _block(folder: Path, start: int) -> Path:
    return folder / f"block-{start:010d}.npy"


def _is_whole(path: Path, units: int) -> bool:
    """Whether an interrupted scoring wrote this block."""
    try:
        scores = load_array(path, np.float32, dimensions=2)
    except DamagedError:
        return False
    return scores.shape[1] == units and bool(np.isfinite(scores).all())


class InfluenceScores:
    """The stored scores of all units on all task batches, `columns` of which are ranked at once."""

    def __init__(self, folder: Path, columns: int = COLUMNS) -> None:
        self.columns = columns
        with damage_is_clear(folder / "scores.json"):
            about = read_json(folder / "scores.json")
            self.units = int(about["units"])
            self.tasks = int(about["task_batches"])
            block = int(about["block"])
        self._order = load_array(folder / "order.npy", np.int64)
        starts = range(0, self.units, block)
        self._blocks = [
            load_array(_block(folder, start), np.float32, mapped=True, dimensions=2)
            for start in starts
        ]
        scored = sum(block.shape[1] for block in self._blocks)
        whole = about["format"] == FORMAT and len(self._order) == self.units == scored
        whole = whole and bool((np.sort(self._order) == np.arange(self.units)).all())
        if not whole or any(len(block) != self.tasks for block in self._blocks):
            raise damaged(folder / "scores.json", "the files of the scores do not fit together")

    def of_tasks(self, start: int, stop: int) -> Floats:
        """The scores of some task batches on all units, in the units' own order: (task batches,
        units).
        """
        scores = np.empty((min(stop, self.tasks) - start, self.units), np.float32)
        place = 0
        for block in self._blocks:
            scores[:, self._order[place : place + block.shape[1]]] = block[start:stop]
            place += block.shape[1]
        return scores


@dataclass
class _Best:
    """Of each unit: its best rank and score on any task batch, and the task batches on which it
    ranks best.
    """

    ranks: npt.NDArray[np.int32]
    scores: Floats
    asker_ranks: npt.NDArray[np.int32]  # (units, ASKED_KEPT), best first
    askers: npt.NDArray[np.int32]


def _best_of(scores: InfluenceScores) -> _Best:
    units = scores.units
    best = np.full(units, -np.inf, np.float32)
    asker_ranks = np.full((units, ASKED_KEPT), _NEVER, np.int32)
    askers = np.full((units, ASKED_KEPT), -1, np.int32)
    for start in range(0, scores.tasks, scores.columns):
        of_tasks = scores.of_tasks(start, start + scores.columns)
        ranks = np.empty((len(of_tasks), units), np.int32)
        for row, own in zip(ranks, of_tasks, strict=True):
            order = np.argsort(-own, kind="stable")  # ties: the better candidate first
            row[order] = np.arange(units, dtype=np.int32)
        np.maximum(best, of_tasks.max(0), out=best)
        tasks = np.arange(start, start + len(of_tasks), dtype=np.int32)
        numbers = np.broadcast_to(tasks, (units, len(of_tasks)))
        all_ranks, all_numbers = np.hstack([asker_ranks, ranks.T]), np.hstack([askers, numbers])
        first = np.argsort(all_ranks, axis=1, kind="stable")[:, :ASKED_KEPT]
        asker_ranks = np.take_along_axis(all_ranks, first, 1)
        askers = np.take_along_axis(all_numbers, first, 1)
    return _Best(asker_ranks[:, 0].copy(), best, asker_ranks, askers)


def choose(
    scores: InfluenceScores,
    candidates: int,
    share: float,
    together: int,
    task_together: int,
    examples: int,
) -> tuple[Chosen, int]:
    """The chosen candidates, best first, and k: the union of the k best of every task batch has the
    wanted size.

    Of those that are only at rank k, the ones with the highest scores are taken, so that the size
    is exact: share · candidates, rounded. `together` candidates are one unit, `task_together`
    examples one task batch. Memory: about 1.5 KB per unit.
    """
    if scores.units != -(-candidates // together) or scores.tasks != -(-examples // task_together):
        scored = f"{scores.units} units and {scores.tasks} task batches"
        raise ValueError(
            f"the scores have {scored}, "
            f"which does not match {candidates} candidates and {examples} examples"
        )
    best = _best_of(scores)
    wanted = max(1, round(share * candidates))
    order = np.lexsort((-best.scores, best.ranks))  # stable: ties stay by better candidate
    units = order[: -(-wanted // together) + 1]  # the last unit of all may be smaller
    members = (units[:, None] * together + np.arange(together)).ravel()
    of_unit = np.repeat(units, together)[members < candidates][:wanted]
    passages = members[members < candidates][:wanted]
    k = int(best.ranks[of_unit].max()) + 1
    askers = [
        _examples(best.askers[unit][best.asker_ranks[unit] < k], task_together, examples)
        for unit in of_unit
    ]
    offsets = np.cumsum([0, *map(len, askers)]).astype(np.int64)
    flat = np.concatenate([np.empty(0, np.int32), *askers]).astype(np.int32)
    scores_of, ranks = best.scores[of_unit], best.ranks[of_unit]
    return Chosen(passages.astype(np.int64), scores_of, ranks, offsets, flat), k


def _examples(
    batches: npt.NDArray[np.int32], together: int, examples: int
) -> npt.NDArray[np.int32]:
    """The task examples of some task batches, at most as many as are kept."""
    numbers = (batches[:, None] * together + np.arange(together)).ravel()[: 2 * ASKED_KEPT]
    return numbers[numbers < examples][:ASKED_KEPT].astype(np.int32)


class CandidateTexts:
    """Some passages of a stored selection, found by their numbers in the corpus; their texts are
    held in memory.
    """

    def __init__(self, path: Path, rows: Ints) -> None:
        wanted = np.sort(rows)
        parts, place = [], 0
        with selection_is_clear(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["id", "text", "source", "number"]):
                first, last = np.searchsorted(wanted, [place, place + len(batch)])
                parts.append(batch.take(pa.array(wanted[first:last] - place)))
                place += len(batch)
        table = pa.Table.from_batches(parts)
        self._ids = table["id"].to_pylist()
        self._texts = table["text"].to_pylist()
        self._sources = table["source"].to_pylist()
        numbers = table["number"].to_numpy()
        self._place = {int(number): place for place, number in enumerate(numbers)}
        # in the corpus, in the order of `rows`
        self.numbers: Ints = numbers[np.searchsorted(wanted, rows)]

    def id(self, i: int, /) -> str:
        """The id of the passage with this number."""
        return str(self._ids[self._place[i]])

    def text(self, i: int, /) -> str:
        """Its text."""
        return str(self._texts[self._place[i]])

    def source(self, i: int, /) -> str:
        """Its source."""
        return str(self._sources[self._place[i]])
