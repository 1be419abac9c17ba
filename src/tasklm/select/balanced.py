"""BM25 selection in which every class of the task gets its share of the passages.

The union of all queries favours classes with many examples: a class with few examples has few
queries. Here each class has its own list, and the classes take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tasklm.corpus.kernels import compiled
from tasklm.errors import RunError
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Chosen, Ranking, described
from tasklm.select.bm25 import Bm25Selector

_NEVER = np.iinfo(np.int32).max


@SELECTORS.register("balanced")
class BalancedSelector(Bm25Selector):
    """Scores like BM25; the classes then choose in turn, each its best passage that is not yet
    taken.
    """

    def __init__(self, settings: Select) -> None:
        super().__init__(settings)
        self.labels: list[str] = []

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Turns the task's texts into queries and remembers the class of each."""
        if len(texts) != len(labels):
            raise ValueError(f"{len(texts)} texts have {len(labels)} labels")
        super().fit(texts, labels)
        self.labels = list(labels)

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """The passages that classes take in turn, in sorted order of their labels, until `passages`
        are taken or none is left.

        A class goes through the results of its own queries, best first as in `union`; score, rank
        and matched queries of a passage are over all queries. Memory: about 20 bytes per passage of
        the corpus, and 8 per class and wanted passage.
        """
        queries = len(ranking.offsets) - 1
        if queries != len(self.labels):
            raise RunError(
                f"the stored ranking has {queries:,} task examples, but the task has "
                f"{len(self.labels):,}. "
                "Delete the folder of the selection and run the same command again."
            )
        by_class: dict[str, list[int]] = {label: [] for label in sorted(set(self.labels))}
        for query, label in enumerate(self.labels):
            by_class[label].append(query)
        # no class can look further
        lists = [_best_first(ranking, members)[:passages] for members in by_class.values()]
        bounds = np.cumsum([0] + [len(one) for one in lists])
        flat = np.concatenate([np.empty(0, np.int64), *lists])
        taken = np.zeros(int(flat.max(initial=-1)) + 1, np.bool_)
        out = np.empty(len(flat[:passages]), np.int64)
        return described(ranking, out[: take_turns(flat, bounds, taken, out)])


def _best_first(ranking: Ranking, queries: Sequence[int]) -> npt.NDArray[np.int64]:
    """The results of these queries, each passage once: by best rank, then higher score, then lower
    number.
    """
    rows = [slice(ranking.offsets[query], ranking.offsets[query + 1]) for query in queries]
    size = max((int(ranking.passages[row].max(initial=-1)) for row in rows), default=-1) + 1
    ranks = np.full(size, _NEVER, np.int32)
    scores = np.full(size, -np.inf, np.float32)
    for row in rows:
        numbers = ranking.passages[row]  # a query finds a passage once
        ranks[numbers] = np.minimum(ranks[numbers], np.arange(len(numbers), dtype=np.int32))
        scores[numbers] = np.maximum(scores[numbers], ranking.scores[row])
    numbers = np.flatnonzero(ranks != _NEVER)
    return numbers[np.lexsort((-scores[numbers], ranks[numbers]))]


@compiled
def take_turns(
    flat: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    taken: npt.NDArray[np.bool_],
    out: npt.NDArray[np.int64],
) -> int:
    """Fills `out` from the lists flat[bounds[c] : bounds[c + 1]] in turn, each passage once;
    returns how many were filled.
    """
    places = bounds[:-1].copy()
    count = 0
    moved = True
    while moved and count < out.size:
        moved = False
        for one in range(places.size):
            while places[one] < bounds[one + 1] and taken[flat[places[one]]]:
                places[one] += 1
            if places[one] < bounds[one + 1] and count < out.size:
                out[count] = flat[places[one]]
                taken[out[count]] = True
                count += 1
                moved = True
    return count
