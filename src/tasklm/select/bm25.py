"""BM25 selection (TLM, arXiv 2111.04130): every task example's text is a query, and the passages it
retrieves form the selection.

Score of a passage = Σ over the query's terms, repeated ones counted, of idf · tf / (tf + k1·(1 − b
+ b·dl/avgdl)) with idf = log(1 + (N − df + 0.5)/(df + 0.5)). This is Lucene's form: the classic
numerator's constant factor (k1 + 1) is left out, which changes no ranking. N, df and avgdl are of
the whole store; banned passages are left out of the ranking.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasklm.artifacts import Artefacts
from tasklm.corpus.base import PassageSource
from tasklm.corpus.store import PassageStore
from tasklm.recipe.data_sections import Select
from tasklm.select.base import SELECTORS, Chosen, Ranking, Selector, Workplace, union
from tasklm.select.checks import require_passages
from tasklm.select.content import content_key
from tasklm.select.elastic.selector import elastic_ranking
from tasklm.select.lexical.index import (
    FORMAT,
    FreshIndex,
    Index,
    StoredIndex,
    build_index,
    damaged_index,
)
from tasklm.select.lexical.queries import make_queries
from tasklm.select.lexical.search import Scoring, search
from tasklm.select.lexical.terms import stemmer
from tasklm.select.spark.bm25 import spark_search
from tasklm.storage.files import digest
from tasklm.tracking import Tracker

_INDEX_SHARE = 0.6  # bytes of index per byte of text, about


@SELECTORS.register("bm25")
class Bm25Selector(Selector):
    """Takes the k best passages of every task example by BM25."""

    def __init__(self, settings: Select) -> None:
        self.settings = settings
        self.queries: list[list[str]] = []

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        """Turns the task's texts into queries."""
        self.queries = make_queries(texts, self.settings)

    def score(
        self,
        store: PassageSource,
        banned: npt.NDArray[np.bool_],
        k: int,
        place: Workplace,
    ) -> Ranking:
        """The k best passages of each query; the index is built once per corpus and shared by all
        tasks.
        """
        require_passages(len(store), banned)
        scoring = Scoring(self.settings.k1, self.settings.b, k)
        if store.cluster is not None:
            stemming = self.settings.stemming
            return spark_search(store.cluster, self.queries, banned, scoring, stemming, place)
        local = store.local
        assert local is not None
        if self.settings.engine == "elastic":
            return elastic_ranking(self.queries, local, banned, self.settings, k, place)
        index: Index
        if _pays_to_keep(local, self.settings, place.indexes):
            index = open_index(
                local, place.indexes, self.settings.stemming, place.threads, place.tracker
            )
        else:
            index = FreshIndex(local, stemmer(self.settings.stemming), place.threads)
        started = time.monotonic()
        ranking = search(index, self.queries, banned, scoring, place)
        place.tracker.event(
            "searched",
            queries=len(self.queries),
            passages=index.passages,
            found=len(ranking.passages),
            seconds=round(time.monotonic() - started, 3),
        )
        return ranking

    def choose(self, ranking: Ranking, passages: int | None) -> Chosen:
        """The union of the queries' results, best ranks first."""
        return union(ranking, passages)


def open_index(
    store: PassageStore, indexes: Artefacts, stemming: str, threads: int, tracker: Tracker
) -> StoredIndex:
    """The store's index, built under `indexes` unless it exists."""
    key = digest(["bm25", FORMAT, content_key(store), stemming])
    kind = "bm25" if stemming == "none" else f"bm25{stemming}"

    def build(folder: Path) -> None:
        build_index(store, folder, stemmer(stemming), threads, tracker)

    index = StoredIndex(indexes.build(f"{kind}-{key}", key, build, uses=[store.folder]))
    if index.passages != len(store):
        raise damaged_index(index.folder)
    return index


def _pays_to_keep(store: PassageStore, settings: Select, indexes: Artefacts) -> bool:
    """Whether to store the index: if the recipe leaves it open, when the disk has room for it
    twice.
    """
    if settings.index != "auto":
        return settings.index == "keep"
    needed = _INDEX_SHARE * store.bytes_up_to(len(store))
    return shutil.disk_usage(indexes.folder).free > 2 * needed
