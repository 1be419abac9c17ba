"""Passages that contain text of dev or test: a model that had read them would be scored on what it
memorised.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.contamination import FEWEST_WORDS, Contamination
from tasklm.corpus.kernels import fill_runs, find_runs
from tasklm.corpus.processes import in_order, processes_for
from tasklm.corpus.store import PassageStore
from tasklm.corpus.words import words
from tasklm.storage.files import full_disk_is_clear
from tasklm.storage.scratch import Scratch
from tasklm.tracking import Tracker

MOST_EXAMPLES = 20
_BATCH = 2048
_WORTH_A_PROCESS = 16 << 20  # bytes of text: less is searched before a process has started
_ARRAYS = ("task", "lengths", "hashes", "places", "sizes")  # the files of a table of runs

Found = tuple[
    NDArray[np.int64], NDArray[np.int32]
]  # per passage: place of the first shared run, or -1, and its length


@dataclass(frozen=True)
class RunTable:
    """Runs of words in a table of hashes that also knows the words themselves."""

    numbers: dict[str, int]  # of the words, counted from 1 in this order
    task: NDArray[np.int32]  # the words of all texts, end to end
    lengths: NDArray[np.int32]  # those that runs have, each once
    hashes: NDArray[np.uint64]
    places: NDArray[np.int64]  # where in `task` the run of each hash starts, or -1
    sizes: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        numbers: dict[str, int],
        task: NDArray[np.int32],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int32],
    ) -> RunTable:
        """The table of the runs that start at these places of `task` and have these lengths."""
        slots = 1 << max(4, int(starts.size * 1.5).bit_length())
        hashes = np.zeros(slots, dtype=np.uint64)
        places = np.full(slots, -1, dtype=np.int64)
        sizes = np.zeros(slots, dtype=np.int32)
        fill_runs(task, starts, lengths, hashes, places, sizes)
        return cls(numbers, task, np.unique(lengths), hashes, places, sizes)

    def save(self, folder: Path) -> None:
        """Writes the table for other processes, which map its arrays."""
        with full_disk_is_clear(folder):
            for name in _ARRAYS:
                np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
            (folder / "words.json").write_text(json.dumps(list(self.numbers)), encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> RunTable:
        """The table that `save` wrote."""
        names = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        arrays = [
            # "c", not "r": compiled loops are for arrays that may be written
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False))
            for name in _ARRAYS
        ]
        return cls({name: number for number, name in enumerate(names, 1)}, *arrays)

    def find(self, texts: Sequence[str]) -> Found:
        """For each text the place of the first run it shares with the task, or -1, and the run's
        length.
        """
        all_words: list[str] = []
        ends = np.empty(len(texts), dtype=np.int64)
        for t, text in enumerate(texts):
            all_words += words(text)
            ends[t] = len(all_words)
        numbers = map(self.numbers.get, all_words, repeat(0))
        ids = np.fromiter(numbers, dtype=np.int32, count=len(all_words))
        places = np.empty(len(texts), dtype=np.int64)
        sizes = np.zeros(len(texts), dtype=np.int32)
        find_runs(
            ids,
            ends,
            self.lengths,
            self.task,
            self.hashes,
            self.places,
            self.sizes,
            places,
            sizes,
        )
        return places, sizes


class HeldOutRuns:
    """Every run of words of the task texts, and which text each is from."""

    def __init__(self, splits: Mapping[str, Sequence[str]], run_words: int) -> None:
        numbers: dict[str, int] = {}
        # split and number of each text, in order of its place
        self.origins: list[tuple[str, int]] = []
        self.short = self.unchecked = 0
        parts, starts, lengths, first = [], [], [], []
        place = 0
        for split, texts in splits.items():
            for number, text in enumerate(texts, 1):
                own = words(text)
                length = min(run_words, len(own))
                if length < min(FEWEST_WORDS, run_words):
                    self.unchecked += 1
                    continue
                self.short += length < run_words
                ids = [numbers.setdefault(word, len(numbers) + 1) for word in own]
                parts.append(np.array(ids, dtype=np.int32))
                starts.append(np.arange(place, place + len(own) - length + 1, dtype=np.int64))
                lengths.append(np.full(starts[-1].size, length, dtype=np.int32))
                first.append(place)
                self.origins.append((split, number))
                place += len(own)
        self._first = np.array(first, dtype=np.int64)
        self.table = RunTable.of(
            numbers,
            np.concatenate([*parts, np.empty(0, dtype=np.int32)]),
            np.concatenate([*starts, np.empty(0, dtype=np.int64)]),
            np.concatenate([*lengths, np.empty(0, dtype=np.int32)]),
        )

    def origin(self, place: int) -> tuple[str, int]:
        """The split and number of the text that a run comes from."""
        return self.origins[int(np.searchsorted(self._first, place, side="right")) - 1]

    def shared(self, place: int, size: int) -> dict[str, Any]:
        """A run to show: its "words", the "split" it is from, and which of the split's texts, from
        1 ("example").
        """
        split, number = self.origin(place)
        names = list(self.table.numbers)
        return {
            "words": " ".join(names[word - 1] for word in self.table.task[place : place + size]),
            "split": split,
            "example": number,
        }


def contaminated(
    store: PassageStore,
    splits: Mapping[str, Sequence[str]],
    run_words: int,
    tracker: Tracker,
    processes: int | None = None,
) -> Contamination:
    """Which passages share `run_words` consecutive words with any of the texts.

    A text shorter than that, but of 5 words or more, bans the passages that contain it as a whole;
    one under 5 words is not checked. Runs are found by hash and compared word by word, so that no
    passage is banned by chance. `processes` share the work; by default as many as are worth
    starting.
    """
    runs = HeldOutRuns(splits, run_words)
    result = Contamination(
        np.zeros(len(store), dtype=np.bool_), short=runs.short, unchecked=runs.unchecked
    )
    if not runs.table.task.size:
        return result
    processes = processes or processes_for(store.bytes_up_to(len(store)), _WORTH_A_PROCESS)
    starts = range(0, len(store), _BATCH)
    with tracker.progress("searching the corpus for dev and test text", len(store)) as bar:
        for start, (places, sizes) in zip(
            starts, _found(runs.table, store, starts, processes), strict=True
        ):
            result.banned[start : start + len(places)] = places >= 0
            for i in np.flatnonzero(places >= 0)[: MOST_EXAMPLES - len(result.examples)].tolist():
                passage = {
                    "id": store.id(start + i),
                    "source": store.source(start + i),
                    "text": store.text(start + i),
                }
                result.examples.append(passage | runs.shared(int(places[i]), int(sizes[i])))
            bar.advance(len(places))
    tracker.event(
        "contamination",
        banned=int(result.banned.sum()),
        short=result.short,
        unchecked=result.unchecked,
    )
    return result


def _found(table: RunTable, store: PassageStore, starts: range, processes: int) -> Iterator[Found]:
    """Yields the results of `find` for the passages from each start; other processes map the table
    from files.
    """
    if processes == 1:
        yield from (_look(table, store, start) for start in starts)
        return
    with Scratch() as folder:
        table.save(folder)
        yield from in_order(partial(_look_from_files, folder, store.folder), starts, processes)


def _look(table: RunTable, store: PassageStore, start: int) -> Found:
    return table.find(store.texts(start, min(start + _BATCH, len(store))))


def _look_from_files(table: Path, store: Path, start: int) -> Found:
    return _look(*_opened(table, store), start)


@functools.lru_cache(maxsize=1)
def _opened(table: Path, store: Path) -> tuple[RunTable, PassageStore]:
    return RunTable.open(table), PassageStore.open(store)
