"""Passages of a corpus on a cluster that share a run of words with dev or test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.contamination import Contamination
from tasklm.corpus.decontaminate import MOST_EXAMPLES, HeldOutRuns
from tasklm.corpus.spark.files import Chunk
from tasklm.corpus.spark.store import SparkStore
from tasklm.tracking import Tracker

_FIND_AT_ONCE = 2048


def contaminated_on_spark(
    store: SparkStore, splits: Mapping[str, Sequence[str]], run_words: int, tracker: Tracker
) -> Contamination:
    """What `contaminated` returns for a PassageStore of the same files."""
    runs = HeldOutRuns(splits, run_words)
    result = Contamination(
        np.zeros(len(store), np.bool_), short=runs.short, unchecked=runs.unchecked
    )
    if not runs.table.task.size:
        return result
    known = store.spark.context.broadcast(runs)
    first_examples: list[tuple[int, dict[str, Any]]] = []
    with tracker.progress("searching the corpus for dev and test text"):
        for numbers, examples in store.collect(partial(_contaminated_passages, runs=known)):
            result.banned[numbers] = True
            first_examples = sorted([*first_examples, *examples], key=lambda entry: entry[0])[
                :MOST_EXAMPLES
            ]
    known.unpersist()
    result.examples = [example for _, example in first_examples]
    tracker.event(
        "contamination",
        banned=int(result.banned.sum()),
        short=result.short,
        unchecked=result.unchecked,
    )
    return result


def _contaminated_passages(
    chunk: Chunk, runs: Any
) -> Iterator[tuple[NDArray[np.int64], list[tuple[int, dict[str, Any]]]]]:
    texts = chunk.texts()
    for first in range(0, len(texts), _FIND_AT_ONCE):
        places, sizes = runs.value.table.find(texts[first : first + _FIND_AT_ONCE])
        shared = np.flatnonzero(places >= 0)
        examples = []
        for i in shared[:MOST_EXAMPLES].tolist():
            at = first + i
            passage = {
                "id": f"{int(chunk.keys[at]):016x}",
                "source": chunk.source(at),
                "text": texts[at],
            }
            examples.append(
                (chunk.start + at, passage | runs.value.shared(int(places[i]), int(sizes[i])))
            )
        if len(shared):
            yield shared + (chunk.start + first), examples
