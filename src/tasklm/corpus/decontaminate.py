"""Passages that contain text of dev or test: a model that had read them would be scored on what it
memorised.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.contamination import FEWEST_WORDS, Contamination
from tasklm.corpus.kernels import fill_runs, find_runs
from tasklm.corpus.processes import in_order, processes_for
from tasklm.corpus.store import PassageStore
from tasklm.corpus.words import words
from tasklm.tracking import Tracker

MOST_EXAMPLES = 20
_BATCH = 2048
_WORTH_A_PROCESS = 16 << 20  # bytes of text: less is searched before a process has started

Found = tuple[
    NDArray[np.int64], NDArray[np.int32]
]  # per passage: place of the first shared run, or -1, and its length


class HeldOutRuns:
    """Every run of words of the task texts, in a table of hashes that also knows the words
    themselves.
    """

    def __init__(self, splits: Mapping[str, Sequence[str]], run_words: int) -> None:
        self.numbers: dict[str, int] = {}
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
                ids = [self.numbers.setdefault(word, len(self.numbers) + 1) for word in own]
                parts.append(np.array(ids, dtype=np.int32))
                starts.append(np.arange(place, place + len(own) - length + 1, dtype=np.int64))
                lengths.append(np.full(starts[-1].size, length, dtype=np.int32))
                first.append(place)
                self.origins.append((split, number))
                place += len(own)
        self.task = np.concatenate([*parts, np.empty(0, dtype=np.int32)])
        self._first = np.array(first, dtype=np.int64)
        all_starts = np.concatenate([*starts, np.empty(0, dtype=np.int64)])
        all_lengths = np.concatenate([*lengths, np.empty(0, dtype=np.int32)])
        self._lengths = np.unique(all_lengths)
        slots = 1 << max(4, int(all_starts.size * 1.5).bit_length())
        self._hashes = np.zeros(slots, dtype=np.uint64)
        self._places = np.full(slots, -1, dtype=np.int64)
        self._sizes = np.zeros(slots, dtype=np.int32)
        fill_runs(self.task, all_starts, all_lengths, self._hashes, self._places, self._sizes)

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
            self._lengths,
            self.task,
            self._hashes,
            self._places,
            self._sizes,
            places,
            sizes,
        )
        return places, sizes

    def origin(self, place: int) -> tuple[str, int]:
        """The split and number of the text that a run comes from."""
        return self.origins[int(np.searchsorted(self._first, place, side="right")) - 1]

    def shared(self, place: int, size: int) -> dict[str, Any]:
        """A run to show: its "words", the "split" it is from, and which of the split's texts, from
        1 ("example").
        """
        split, number = self.origin(place)
        names = list(self.numbers)
        return {
            "words": " ".join(names[word - 1] for word in self.task[place : place + size]),
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
    if not runs.task.size:
        return result
    processes = processes or processes_for(store.bytes_up_to(len(store)), _WORTH_A_PROCESS)
    starts = range(0, len(store), _BATCH)
    with tracker.progress("searching the corpus for dev and test text", len(store)) as bar:
        for start, (places, sizes) in zip(
            starts, _found(runs, store, starts, processes), strict=True
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


def _found(
    runs: HeldOutRuns, store: PassageStore, starts: range, processes: int
) -> Iterator[Found]:
    """Yields the results of `find` for the passages from each start; other processes map the table
    of runs from a file.
    """
    if processes == 1:
        yield from (_look(runs, store, start) for start in starts)
        return
    with tempfile.TemporaryDirectory(prefix="tasklm-") as folder:
        joblib.dump(runs, Path(folder) / "runs")
        yield from in_order(
            partial(_look_from_files, Path(folder) / "runs", store.folder), starts, processes
        )


def _look(runs: HeldOutRuns, store: PassageStore, start: int) -> Found:
    return runs.find(store.texts(start, min(start + _BATCH, len(store))))


def _look_from_files(runs: Path, store: Path, start: int) -> Found:
    return _look(*_opened(runs, store), start)


@functools.lru_cache(maxsize=1)
def _opened(runs: Path, store: Path) -> tuple[HeldOutRuns, PassageStore]:
    return joblib.load(runs, mmap_mode="c"), PassageStore.open(store)
