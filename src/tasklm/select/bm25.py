"""BM25 selection (TLM, arXiv 2111.04130): every task example's text is a query, the passages it finds are the subset.

Score of a passage = Σ over the query's terms, repeated ones counted, of idf · tf / (tf + k1·(1 − b + b·dl/avgdl)) with
idf = log(1 + (N − df + 0.5)/(df + 0.5)). This is Lucene's form: the classic numerator's constant factor (k1 + 1) is
left out, which changes no ranking. N, df and avgdl are of the whole store; banned passages are left out of the ranking.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tasklm.corpus.store import PassageStore
from tasklm.recipe import Select
from tasklm.runs import Artefacts, digest
from tasklm.select.base import SELECTORS, Chosen, Ranking, Selector, Workplace, union
from tasklm.select.bm25_index import FORMAT, Bm25Index, build_index, damaged
from tasklm.select.bm25_search import Scoring, search
from tasklm.select.checks import require_passages
from tasklm.select.queries import make_queries
from tasklm.tracking import Tracker


@SELECTORS.register("bm25")
class Bm25Selector(Selector):
    """Takes the k best passages of every task example by BM25."""

    def __init__(self, settings: Select) -> None:
        self.settings = settings
        self.queries: list[list[str]] = []

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Turns the task's texts into queries."""
        self.queries = make_queries(texts, self.settings)

    def score(self, store: PassageStore, banned: npt.NDArray[np.bool_], k: int, place: Workplace) -> Ranking:
        """Returns the k best passages of each query; the index is built once per corpus and shared by all tasks."""
        require_passages(len(store), banned)
        index = open_index(store, place.indexes, place.tracker)
        started = time.monotonic()
        ranking = search(index, self.queries, banned, Scoring(self.settings.k1, self.settings.b, k), place)
        place.tracker.event(
            "searched",
            queries=len(self.queries),
            passages=index.passages,
            found=len(ranking.passages),
            seconds=round(time.monotonic() - started, 3),
        )
        return ranking

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """Returns the union of what the queries found, best ranks first."""
        return union(ranking, passages)


def open_index(store: PassageStore, indexes: Artefacts, tracker: Tracker) -> Bm25Index:
    """Returns the store's index, built under `indexes` unless it is there."""
    key = digest(["bm25", FORMAT, _content_key(store)])
    index = Bm25Index(indexes.build(f"bm25-{key}", key, lambda folder: build_index(store, folder, tracker)))
    if index.passages != len(store):
        raise damaged(index.folder)
    return index


def _content_key(store: PassageStore) -> str:
    """Returns a hash of all passage ids in order; an id is a hash of the passage's folded text, so equal means equal words."""
    hasher = hashlib.blake2b(digest_size=12)
    for number in range(len(store)):
        hasher.update(store.id(number).encode() + b"\n")
    return hasher.hexdigest()
