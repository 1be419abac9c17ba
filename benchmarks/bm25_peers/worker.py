"""One phase of one engine in a process of its own: `python -m bm25_peers.worker SPEC.json
REPORT.json`.

CPU seconds are user and system time of this process between two moments; peak memory is the
high-water mark of its resident pages, mapped files included, from its start to its end.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bm25_peers.engines import Bm25s, Engine, Ours, Probe, Tantivy, build_ours, search_ours
from bm25_peers.text import DataSet, open_data
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.sources import find_files, read_documents
from tasklm.corpus.store import PassageStore, build_store
from tasklm.recipe.data_sections import Data, Select
from tasklm.select.lexical.queries import make_queries
from tasklm.tracking import SILENT


class Clock:
    """Seconds and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.started, self.cpu = time.monotonic(), _cpu_seconds()

    def read(self) -> dict[str, float]:
        """The seconds on the wall and on the CPU."""
        return {
            "seconds": round(time.monotonic() - self.started, 4),
            "cpu_seconds": round(_cpu_seconds() - self.cpu, 4),
        }


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_memory() -> int:
    """The most bytes that this process had resident; getrusage would also count the process that
    started it.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def make_engine(spec: dict[str, Any], scratch: Path) -> Engine:
    """The engine that the specification names."""
    if spec["engine"] == "probe":
        return Probe(Path(spec["probe"]), scratch)
    engines: dict[str, type[Engine]] = {"ours": Ours, "bm25s": Bm25s, "tantivy": Tantivy}
    return engines[spec["engine"]]()


def warm_up(engine: Engine, data: DataSet, lengths: list[int], scratch: Path) -> None:
    """Builds and searches a small index, so that everything is imported and compiled."""
    folder = scratch / "warm"
    folder.mkdir()
    engine.build(data.warm, folder)
    engine.open(data.warm, folder)
    for length in lengths:
        engine.numbers(engine.search(data.warm.queries(length), min(10, data.warm.passages)))


def build(spec: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What building took."""
    data, engine = open_data(Path(spec["data"])), make_engine(spec, scratch)
    warm_up(engine, data, spec["lengths"], scratch)
    clock = Clock()
    engine.build(data, Path(spec["index"]))
    return {**clock.read(), "version": engine.version()}


def search(spec: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What searching took for each length of queries and each k, and writes what the first queries
    found.
    """
    data, engine = open_data(Path(spec["data"])), make_engine(spec, scratch)
    warm_up(engine, data, spec["lengths"], scratch)
    engine.open(data, Path(spec["index"]))
    runs = []
    for length in spec["lengths"]:
        queries = data.queries(length)
        for k in spec["ks"]:
            done, clock = 0, Clock()
            found: list[Any] = []
            step = engine.at_once or len(queries)
            while done < len(queries) and (
                done < spec["sample"] or clock.read()["cpu_seconds"] < spec["cpu_limit"]
            ):
                result = engine.search(queries[done : done + step], k)
                done += min(step, len(queries) - done)
                if len(found) * step < spec["sample"]:
                    found.append(result)
            runs.append({"words": length, "k": k, "queries": done, **clock.read()})
            rows = [row for result in found for row in engine.numbers(result)]
            _write_found(
                Path(spec["found"]) / f"{spec['engine']}-{length}-{k}.bin",
                rows[: spec["sample"]],
                k,
            )
    return {"runs": runs}


def _write_found(path: Path, rows: list[NDArray[Any]], k: int) -> None:
    """Writes passage numbers as rows of k little-endian int32, -1 where there are fewer."""
    table = np.full((len(rows), k), -1, "<i4")
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    table.tofile(path)


def whole_store(spec: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What making the store of a whole corpus took, and its counts."""
    folder, settings, clock = Path(spec["store"]), Data(), Clock()
    folder.mkdir(parents=True, exist_ok=True)
    files = find_files([spec["corpus"]])
    text = CorpusText(tuple(files), passage_words=settings.passage_words)
    build_store(folder, text, SILENT)
    return {**clock.read(), **PassageStore.open(folder).counts}


def whole_index(spec: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What indexing the whole store took."""
    warm_up(Ours(), open_data(Path(spec["data"])), spec["lengths"], scratch)
    store, clock = PassageStore.open(Path(spec["store"])), Clock()
    build_ours(store, Path(spec["index"]))
    return clock.read()


def whole_search(spec: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """What searching the whole store for a task's texts took."""
    warm_up(Ours(), open_data(Path(spec["data"])), spec["lengths"], scratch)
    texts = [document.text for document in read_documents(Path(spec["task"]))]
    index, clock = build_ours(PassageStore.open(Path(spec["store"])), Path(spec["index"])), Clock()
    ranking = search_ours(index, make_queries(texts, Select()), spec["k"], Path(spec["index"]))
    return {**clock.read(), "queries": len(texts), "k": spec["k"], "found": len(ranking.passages)}


_PHASES = {
    "build": build,
    "search": search,
    "whole_store": whole_store,
    "whole_index": whole_index,
    "whole_search": whole_search,
}


def main() -> None:
    """Does what the specification says and writes the report."""
    spec_file, report_file = map(Path, sys.argv[1:3])
    spec = json.loads(spec_file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(dir=spec["scratch"]) as scratch:
        report = _PHASES[spec["phase"]](spec, Path(scratch))
    report["peak_memory"] = peak_memory()
    report_file.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
