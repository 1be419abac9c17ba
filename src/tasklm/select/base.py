"""The interface of selectors: fit(task) → score(passages) → choose(size), and the form of their
results.

Scoring is the expensive part, and its result, a `Ranking`, is stored; choosing another number of
passages from a stored ranking costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tasklm.artifacts import Artefacts
from tasklm.corpus.base import Passages, PassageSource
from tasklm.corpus.processes import usable_cores
from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Select
from tasklm.registry import Registry
from tasklm.storage.checksums import damage_is_clear, load_array, require_offsets
from tasklm.storage.files import (
    damaged,
    full_disk_is_clear,
    make_parents,
    publish,
    sync,
    temporary_name,
)
from tasklm.tracking import Tracker

LEAST_MEMORY = 256 << 20  # bytes with which scoring can work
ASKING = (
    "asking"  # key in the schema of a stored selection: the split of the examples used as queries
)
ASKED_KEPT = 20  # task examples remembered per chosen passage
_ENTRIES_AT_ONCE = 1 << 21  # ranking entries held in temporary arrays by `union`
_NEVER = np.iinfo(np.int32).max


@dataclass
class Ranking:
    """The results of scoring, per query best first and ties by lower passage number, as compressed
    rows.
    """

    offsets: npt.NDArray[np.int64]  # [queries + 1]
    passages: npt.NDArray[np.int64]  # [found]
    scores: npt.NDArray[np.float32]  # [found]

    def save(self, folder: Path) -> None:
        """Writes the ranking as plain .npy files."""
        with full_disk_is_clear(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in _RANKING_TYPES:
                np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)

    @staticmethod
    def load(folder: Path, passages: int) -> Ranking:
        """The ranking that `save` wrote for a corpus of a given size, memory-mapped; a damaged one
        is refused.
        """
        arrays = {
            name: load_array(folder / f"{name}.npy", kind, mapped=True)
            for name, kind in _RANKING_TYPES.items()
        }
        require_offsets(folder / "offsets.npy", arrays["offsets"], len(arrays["passages"]))
        numbers = arrays["passages"]
        if len(arrays["scores"]) != len(numbers) or (
            len(numbers) and not 0 <= numbers.min() <= numbers.max() < passages
        ):
            raise damaged(folder / "passages.npy", "it does not fit the corpus and the scores")
        return Ranking(**arrays)


_RANKING_TYPES = {
    "offsets": np.dtype(np.int64),
    "passages": np.dtype(np.int64),
    "scores": np.dtype(np.float32),
}


@dataclass
class Chosen:
    """The selected passages, each once, best first: by best rank, then higher score, then lower
    number.
    """

    passages: npt.NDArray[np.int64]  # [n]
    scores: npt.NDArray[np.float32]  # [n] the best score any query gave
    ranks: npt.NDArray[np.int32]  # [n] the best rank in any query, 0 = first
    matched_offsets: npt.NDArray[np.int64]  # [n + 1]
    # task examples that retrieved it, best rank first, at most ASKED_KEPT each
    matched_queries: npt.NDArray[np.int32]


def bytes_of(size: str) -> int:
    """The number of bytes that a size such as 2GB, 500 MB or 1.5GiB means."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?\s*", size, re.IGNORECASE)
    count = 0
    if match:
        base = 1024 if match[3] else 1000
        count = int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
    if count < LEAST_MEMORY:
        least = f"{LEAST_MEMORY >> 20} MiB, such as 2GB or 500MB"
        raise RecipeError([f"select.memory: {size!r} is not a size of at least {least}"])
    return count


@dataclass
class Workplace:
    """Where scoring works and with how much."""

    indexes: Artefacts  # what depends only on the corpus, shared by runs
    scratch: Path  # of this scoring only; an interrupted one leaves its results for the next
    tracker: Tracker
    memory: int = 2 << 30  # bytes that the arrays of a scoring may take
    threads: int = field(default_factory=usable_cores)


class Selector(Protocol):
    """A method that selects the passages that matter for a task."""

    per_example: ClassVar[bool] = True  # whether k counts passages per task example, not in total

    def __init__(self, settings: Select) -> None: ...

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Learns about the task from its training texts and, if the method needs them, their
        labels.
        """

    def score(
        self,
        store: PassageSource,
        banned: npt.NDArray[np.bool_],
        k: int,
        place: Workplace,
    ) -> Ranking:
        """The k best passages per query; a banned passage is never ranked."""

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """The best `passages` of the ranking, or all of it."""


def union(ranking: Ranking, passages: int | None) -> Chosen:
    """Every ranked passage once, best first, cut to `passages`; memory grows with the corpus, not
    with the ranking.
    """
    best = _Best(ranking)
    numbers = np.flatnonzero(best.ranks != _NEVER)
    # stable: ties stay by lower number
    order = np.lexsort((-best.scores[numbers], best.ranks[numbers]))
    return best.described(numbers[order][:passages])


def described(ranking: Ranking, passages: npt.NDArray[np.int64]) -> Chosen:
    """The given passages of the ranking, each once, in the given order, with their values in the
    ranking.
    """
    return _Best(ranking).described(passages)


class _Best:
    """The best rank and score of each passage in any query, and how many queries found it."""

    def __init__(self, ranking: Ranking) -> None:
        size = int(ranking.passages.max(initial=-1)) + 1
        self.ranking = ranking
        self.ranks = np.full(size, _NEVER, np.int32)
        self.scores = np.full(size, -np.inf, np.float32)
        self.counts = np.zeros(size, np.int32)
        for first in range(0, len(ranking.passages), _ENTRIES_AT_ONCE):
            part = slice(first, first + _ENTRIES_AT_ONCE)
            numbers = ranking.passages[part]
            np.minimum.at(self.ranks, numbers, _ranks_of(ranking.offsets, first, len(numbers)))
            np.maximum.at(self.scores, numbers, ranking.scores[part])
            np.add.at(self.counts, numbers, 1)

    def described(self, passages: npt.NDArray[np.int64]) -> Chosen:
        matched_offsets = np.zeros(len(passages) + 1, np.int64)
        np.cumsum(np.minimum(self.counts[passages], ASKED_KEPT), out=matched_offsets[1:])
        return Chosen(
            passages.astype(np.int64),
            self.scores[passages],
            self.ranks[passages],
            matched_offsets,
            _matched_queries(self.ranking, passages, matched_offsets, len(self.ranks)),
        )


def _ranks_of(offsets: npt.NDArray[np.int64], first: int, count: int) -> npt.NDArray[np.int32]:
    """The rank inside its query of each of `count` entries from entry `first`."""
    entries = np.arange(first, first + count)
    return (entries - offsets[np.searchsorted(offsets, entries, side="right") - 1]).astype(np.int32)


def _matched_queries(
    ranking: Ranking,
    chosen: npt.NDArray[np.int64],
    matched_offsets: npt.NDArray[np.int64],
    size: int,
) -> npt.NDArray[np.int32]:
    """The matched queries of each chosen passage, best rank first, then lower query number. The
    first passages of all queries come first, then all second ones, and so on: queries arrive in the
    right order, so nothing needs sorting as a whole, and the work stops when every passage has its
    maximum.
    """
    matched_queries = np.empty(matched_offsets[-1], np.int32)
    place = np.full(size, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    next_slot, ends = matched_offsets[:-1].copy(), matched_offsets[1:]
    open_slots = len(matched_queries)
    lengths = np.diff(ranking.offsets)
    queries = np.flatnonzero(lengths > 0)
    rank = 0
    while open_slots:
        queries = queries[lengths[queries] > rank]
        at = place[ranking.passages[ranking.offsets[queries] + rank]]
        wanted = at >= 0
        at, askers = at[wanted], queries[wanted]
        order = np.argsort(at, kind="stable")
        at, askers = at[order], askers[order]
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        runs = np.diff(np.r_[starts, len(at)])
        slots = next_slot[at] + np.arange(len(at)) - np.repeat(starts, runs)
        fits = slots < ends[at]
        matched_queries[slots[fits]] = askers[fits]
        next_slot[at[starts]] = np.minimum(next_slot[at[starts]] + runs, ends[at[starts]])
        open_slots -= int(fits.sum())
        rank += 1
    return matched_queries


def write_selection(path: Path, store: Passages, chosen: Chosen, asking: str = "train") -> None:
    """Writes the chosen passages with their texts as Parquet, a row group at a time, so that texts
    never pile up.

    The schema names the split of the examples that retrieved them.
    """
    schema = _SELECTION.with_metadata({ASKING: asking})
    temporary = temporary_name(path)
    with full_disk_is_clear(path):
        make_parents(path)
        try:
            with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
                for start in range(0, len(chosen.passages), _ROWS_AT_ONCE):
                    stop = min(start + _ROWS_AT_ONCE, len(chosen.passages))
                    rows = _rows(store, chosen, start, stop)
                    writer.write_table(rows.cast(schema))
            sync(temporary)
            publish(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def asking_split(path: Path) -> str:
    """The split of the examples that retrieved the passages of a stored selection."""
    with selection_is_clear(path):
        return str((pq.read_schema(path).metadata or {}).get(ASKING.encode(), b"train").decode())


def selection_size(path: Path) -> int:
    """How many passages a stored selection has."""
    with selection_is_clear(path):
        return int(pq.read_metadata(path).num_rows)


def read_selection(path: Path, *columns: str) -> pa.Table:
    """Some columns of a stored selection; its texts are read in batches, by
    `read_selection_texts`."""
    with selection_is_clear(path):
        return pq.read_table(path, columns=list(columns))


def read_selection_texts(path: Path) -> Iterator[list[str]]:
    """Yields the texts of a stored selection, best first, in batches."""
    with selection_is_clear(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=["text"]):
            yield batch.column(0).to_pylist()


@contextmanager
def selection_is_clear(path: Path) -> Iterator[None]:
    """Turns errors of reading a damaged stored selection into one that names the remedy."""
    with damage_is_clear(path):
        try:
            yield
        except pa.ArrowException as error:
            raise damaged(path, str(error)) from error


def _rows(store: Passages, chosen: Chosen, start: int, stop: int) -> pa.Table:
    numbers = chosen.passages[start:stop].tolist()
    offsets = chosen.matched_offsets[start : stop + 1]
    lists = pa.ListArray.from_arrays(
        pa.array(offsets - offsets[0], pa.int32()),
        pa.array(chosen.matched_queries[offsets[0] : offsets[-1]], pa.int32()),
    )
    columns = [
        pa.array([store.id(number) for number in numbers], pa.string()),
        pa.array([store.text(number) for number in numbers], pa.string()),
        pa.array([store.source(number) for number in numbers], pa.string()),
        pa.array(chosen.scores[start:stop]),
        pa.array(chosen.ranks[start:stop]),
        lists,
        pa.array(chosen.passages[start:stop]),
    ]
    return pa.Table.from_arrays(columns, schema=_SELECTION)


SELECTION_FORMAT = 2  # of a stored one
_ROWS_AT_ONCE = 4096
_SELECTION = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("source", pa.string()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
        ("matched_queries", pa.list_(pa.int32())),
        ("number", pa.int64()),
    ]
)

SELECTORS: Registry[type[Selector]] = Registry("selector", "tasklm.select")
