"""The engines that run inside Python, each behind the same four calls.

Only `build` and `search` are timed.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bm25_peers.exact import K1, B
from bm25_peers.text import DataSet
from tasklm.artifacts import Artefacts
from tasklm.corpus.processes import usable_cores
from tasklm.corpus.store import PassageStore
from tasklm.select.base import Ranking, Workplace
from tasklm.select.bm25 import open_index
from tasklm.select.lexical.index import StoredIndex
from tasklm.select.lexical.search import Scoring, search
from tasklm.tracking import SILENT

Queries = Sequence[Sequence[str]]


class Engine(Protocol):
    """One search engine."""

    at_once: int | None  # queries given to one call of search; None: all of them

    def build(self, data: DataSet, folder: Path) -> None:
        """Writes the index of the passages into the folder."""

    def open(self, data: DataSet, folder: Path) -> None:
        """Makes the index ready for searching."""

    def search(self, queries: Queries, k: int) -> Any:
        """Each query's k best passages in the engine's own form."""

    def numbers(self, found: Any) -> list[NDArray[Any]]:
        """What `search` returned as passage numbers per query."""

    def version(self) -> str:
        """The engine's version."""


def build_ours(store: PassageStore, folder: Path) -> StoredIndex:
    """Returns tasklm's index of the store, built in the folder unless it is there."""
    return open_index(store, Artefacts(folder), "none", usable_cores(), SILENT)


def search_ours(index: StoredIndex, queries: Queries, k: int, folder: Path) -> Ranking:
    """Returns tasklm's k best passages of each query."""
    with tempfile.TemporaryDirectory(
        dir=folder
    ) as scratch:  # a new one each time: finished work is not done again
        place = Workplace(Artefacts(folder), Path(scratch), SILENT)
        return search(index, queries, np.zeros(index.passages, np.bool_), Scoring(K1, B, k), place)


class Ours:
    """tasklm's BM25: all queries in one call, as a task asks them."""

    at_once: int | None = None

    def __init__(self) -> None:
        self.index: StoredIndex | None = None
        self.folder = Path()

    def build(self, data: DataSet, folder: Path) -> None:
        """Writes the index; it is built from the store of the same passages."""
        build_ours(PassageStore.open(data.store), folder)

    def open(self, data: DataSet, folder: Path) -> None:
        """Opens the index."""
        self.folder, self.index = folder, build_ours(PassageStore.open(data.store), folder)

    def search(self, queries: Queries, k: int) -> Ranking:
        """The ranking of all queries."""
        assert self.index is not None
        return search_ours(self.index, queries, k, self.folder)

    def numbers(self, found: Ranking) -> list[NDArray[Any]]:
        """The ranking's rows."""
        return np.split(np.asarray(found.passages), found.offsets[1:-1])

    def version(self) -> str:
        """Returns tasklm's version."""
        return f"tasklm {version('tasklm')}"


class Bm25s:
    """bm25s with its numba backend: an eager index of float32 scores, searched without pruning."""

    at_once: int | None = 10

    def __init__(self) -> None:
        self.model: Any = None

    def build(self, data: DataSet, folder: Path) -> None:
        """Tokenises by white space, indexes and saves."""
        import bm25s

        tokens = bm25s.tokenize(
            data.lines(), lower=False, token_pattern=r"\S+", stopwords=[], show_progress=False
        )
        model = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
        model.index(tokens, show_progress=False)
        model.save(str(folder), show_progress=False)

    def open(self, data: DataSet, folder: Path) -> None:
        """Loads the saved index into memory."""
        import bm25s

        self.model = bm25s.BM25.load(str(folder), show_progress=False)
        if self.model.backend != "numba":
            raise RuntimeError(f"bm25s runs its backend {self.model.backend}, not numba")

    def search(self, queries: Queries, k: int) -> Any:
        """Returns bm25s's results."""
        return self.model.retrieve(
            [list(query) for query in queries], k=k, n_threads=usable_cores(), show_progress=False
        )

    def numbers(self, found: Any) -> list[NDArray[Any]]:
        """The documents' numbers."""
        return list(found.documents)

    def version(self) -> str:
        """Returns bm25s's version."""
        return f"bm25s {version('bm25s')}, numba backend"


class Tantivy:
    """tantivy: block-max WAND over an OR of terms; passage lengths are kept in one byte, so its
    scores are rounded.
    """

    at_once: int | None = 1

    def __init__(self) -> None:
        self.searcher: Any = None
        self.schema = self._schema()

    @staticmethod
    def _schema() -> Any:
        import tantivy

        builder = tantivy.SchemaBuilder()
        builder.add_text_field("words", stored=False, tokenizer_name="spaces", index_option="freq")
        builder.add_integer_field("number", fast=True)
        return builder.build()

    def _index(self, folder: Path) -> Any:
        import tantivy

        index = tantivy.Index(self.schema, path=str(folder), reuse=True)
        index.register_tokenizer(
            "spaces", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        )
        return index

    def build(self, data: DataSet, folder: Path) -> None:
        """Adds the passages, commits, and waits for the merges that tantivy starts by itself."""
        import tantivy

        writer = self._index(folder).writer(heap_size=256 << 20, num_threads=usable_cores())
        for number, line in enumerate(data.lines()):
            writer.add_document(tantivy.Document(words=line, number=number))
        writer.commit()
        writer.wait_merging_threads()

    def open(self, data: DataSet, folder: Path) -> None:
        """Opens the index."""
        index = self._index(folder)
        index.reload()
        self.searcher = index.searcher()
        if self.searcher.num_docs != data.passages:
            raise RuntimeError(f"tantivy has {self.searcher.num_docs} documents of {data.passages}")

    def search(self, queries: Queries, k: int) -> Any:
        """The hits as tantivy's addresses; a word that is asked twice is a clause twice."""
        from tantivy import Occur, Query

        found = []
        for query in queries:
            clauses = [
                (Occur.Should, Query.term_query(self.schema, "words", word, "freq"))
                for word in query
            ]
            found.append(self.searcher.search(Query.boolean_query(clauses), k, count=False).hits)
        return found

    def numbers(self, found: Any) -> list[NDArray[Any]]:
        """The passage numbers of the addresses."""
        return [
            np.array(
                self.searcher.fast_field_values("number", [address for _, address in hits]),
                np.int64,
            )
            for hits in found
        ]

    def version(self) -> str:
        """The version of tantivy's Python package."""
        return f"tantivy (PyPI) {version('tantivy')}"


class Probe:
    """A feasibility probe in one file, which is named on the command line and is no part of this
    repository.
    """

    at_once: int | None = None

    def __init__(self, file: Path, scratch: Path) -> None:
        spec = importlib.util.spec_from_file_location("bm25_probe", file)
        assert spec is not None and spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.scratch = scratch
        self.index: Any = None

    def build(self, data: DataSet, folder: Path) -> None:
        """Builds in memory and saves the arrays one after another."""
        self.module.Index().build(str(data.text), threads=usable_cores()).save(
            str(folder / "arrays.bin")
        )

    def open(self, data: DataSet, folder: Path) -> None:
        """Reads the arrays back; the probe itself has no way to."""
        self.index = self.module.Index()
        self.index.nd = data.passages
        with (folder / "arrays.bin").open("rb") as file:
            self.index.blocks = [
                tuple(np.load(file) for _ in range(4))
                for _ in range(-(-data.passages // self.index.B))
            ]

    def search(self, queries: Queries, k: int) -> Any:
        """The passage numbers, -1 where there are fewer than k."""
        path = self.scratch / "probe-queries.txt"
        path.write_text("".join(" ".join(query) + "\n" for query in queries), encoding="utf-8")
        return self.module.search(self.index, str(path), k, threads=usable_cores())[0]

    def numbers(self, found: Any) -> list[NDArray[Any]]:
        """The rows."""
        return list(found)

    def version(self) -> str:
        """What it is."""
        return "probe: scores in 16 bits"
