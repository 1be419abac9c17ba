"""BM25 selection beside other engines, on the same text and queries in one run.

    python -m pip install -r benchmarks/requirements.txt      # beside tasklm, in an environment for benchmarks
    python benchmarks/selection.py --work /tmp/bench --sizes 100k,1M --engines ours,bm25s,tantivy --write
    python benchmarks/selection.py --work /tmp/bench --quick --engines ours

Lucene takes part where --lucene names its jars (core and analysis-common of 8.7 to 9, joined by
":", or a jar that holds both, such as the one in PyPI's source archive of pyserini 0.44) and a JDK
is on the path.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from arguments import some_of
from bm25_peers.exact import exact_scores, overlap
from bm25_peers.report import markdown
from bm25_peers.running import Failed, Lucene, run_phase
from bm25_peers.text import LONGEST, SHORTEST, DataSet, corpus_words, make_data
from tasklm.corpus.sources import read_documents
from tasklm.demo.dataset import build as build_demo
from tasklm.errors import DataError, RunError, TaskLMError
from tasklm.storage.files import digest, write_json, write_text

ENGINES = ("ours", "bm25s", "tantivy", "lucene", "probe")
_ROOT = Path(__file__).resolve().parent.parent
_SHARED = _ROOT.parent / "shared"


def main() -> None:
    """Measures what the command line asks for and prints the tables."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    words = corpus_words(_corpus(options), options.work)
    lucene = Lucene(options.lucene, options.work) if "lucene" in options.engines else None
    results = [_measure_size(size, words, options, lucene) for size in options.sizes]
    whole = _measure_whole(words, options) if options.whole else None
    about = _about(options)
    page = markdown(results, whole, about)
    record = {"about": about, "sizes": results, "whole": whole}
    write_json(options.work / "selection.json", record)
    print(page)
    if options.write:
        write_text(_ROOT / "docs" / "benchmarks" / "selection.md", page)
        write_json(_ROOT / "docs" / "benchmarks" / "selection.json", record)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for text, indexes and results; text and results are kept there",
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        help="files or a folder of text; default: ../shared/data/corpus, else the demo's corpus",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=_sizes("100k,1M,4M"),
        help="passages, such as 100k,1M,4M; 0: none, for --whole",
    )
    parser.add_argument(
        "--engines",
        type=some_of(ENGINES),
        default=["ours", "bm25s", "tantivy"],
        help=f"from {','.join(ENGINES)}",
    )
    parser.add_argument(
        "--lucene", help="class path with Lucene's jars, when lucene is among the engines"
    )
    parser.add_argument(
        "--probe",
        type=Path,
        default=_SHARED / "probes" / "bm25_blocks.py",
        help="the file of the probe",
    )
    parser.add_argument("--lengths", type=_numbers, default=[30, 200], help="words of a query")
    parser.add_argument("--ks", type=_numbers, default=[50, 500, 5000], help="passages per query")
    parser.add_argument("--queries", type=int, default=2000, help="queries of each length")
    parser.add_argument(
        "--sample",
        type=int,
        default=10,
        help="queries of each length that are compared with brute force",
    )
    parser.add_argument(
        "--cpu-limit",
        type=float,
        default=20.0,
        help="CPU seconds after which engines that answer one by one stop",
    )
    parser.add_argument("--cores", type=int, default=1, help="cores of a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="do not measure a size again that was measured in the same way in this work folder",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="also the whole corpus as it is, with all cores (ours only)",
    )
    parser.add_argument(
        "--task",
        type=Path,
        help="table with a text column whose texts are the queries of --whole, K = 500",
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks/selection.md and .json"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: 2,000 passages, 20 queries, small K"
    )
    options = parser.parse_args()
    if options.quick:
        options.sizes = [2000]
        options.queries = 20
        options.sample = 4
        options.ks = [5, 50]
        options.cpu_limit = 1.0
    _check(options)
    return options


def _check(options: argparse.Namespace) -> None:
    if "lucene" in options.engines and not options.lucene:
        raise RunError("lucene needs --lucene with its jars, or is to be left out of --engines")
    if "probe" in options.engines and not options.probe.exists():
        raise DataError(
            "there is no probe",
            file=options.probe,
            remedy="Name its file with --probe, or leave probe out of --engines.",
        )
    if not 1 <= options.sample <= options.queries or not 1 <= options.cores <= len(
        os.sched_getaffinity(0)
    ):
        raise RunError(
            "--sample is from 1 to --queries, and --cores from 1 to the cores of this machine"
        )
    if options.whole and options.task is None:
        raise RunError("--whole needs --task, the table whose texts are asked")


def _sizes(text: str) -> list[int]:
    units = {"k": 1000, "m": 1_000_000}
    found = [
        int(float(part.rstrip("kKmM")) * units.get(part[-1].lower(), 1)) for part in text.split(",")
    ]
    return [size for size in found if size]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _corpus(options: argparse.Namespace) -> Path:
    """The corpus that was named, the shared one, or the demo's."""
    if options.corpus is None and (_SHARED / "data" / "corpus").exists() and not options.quick:
        options.corpus = _SHARED / "data" / "corpus"
    if options.corpus is None:
        options.corpus = _demo_corpus(options.work / "demo")
    found: Path = options.corpus
    return found


def _demo_corpus(folder: Path) -> Path:
    """The demo's corpus with the passages of a file joined again, made unless it is there."""
    path = folder / "documents.jsonl"
    if not path.exists():
        build_demo(folder)
        passages = read_documents(folder / "corpus.jsonl.zst")
        joined = (
            " ".join(one.text for one in together)
            for _, together in itertools.groupby(passages, lambda one: one.source)
        )
        write_text(path, "".join(json.dumps({"text": text}) + "\n" for text in joined))
    return path


def _measure_size(
    size: int, words: Path, options: argparse.Namespace, lucene: Lucene | None
) -> dict[str, Any]:
    """What every engine did with `size` passages; saved in the work folder when all are done."""
    asked = [
        words.name,
        options.engines,
        options.lengths,
        options.ks,
        options.queries,
        options.sample,
        options.cores,
        options.seed,
    ]
    path = options.work / "results" / f"{size}-{digest(asked)}.json"
    if options.resume and path.exists():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    data = make_data(words, options.work, size, options.lengths, options.queries, options.seed)
    scores = {
        length: exact_scores(
            data.text,
            size,
            data.queries(length)[: options.sample],
            data.folder / f"exact-{length}-{options.sample}.npy",
        )
        for length in options.lengths
    }
    engines = {}
    for name in options.engines:
        engines[name] = _measure_engine(name, data, options, lucene)
        for run in engines[name].get("search", {}).get("runs", []):
            found = np.fromfile(
                data.folder / "found" / f"{name}-{run['words']}-{run['k']}.bin", "<i4"
            ).reshape(-1, run["k"])
            run["overlap"] = float(
                np.mean(
                    [
                        overlap(row, ids, run["k"])
                        for row, ids in zip(scores[run["words"]], found, strict=True)
                    ]
                )
            )
        _say(f"{size:,} passages, {name}: {json.dumps(engines[name])}")
    result = {"passages": size, "words": data.words, "bytes": data.bytes, "engines": engines}
    write_json(path, result)
    return result


def _measure_engine(
    name: str, data: DataSet, options: argparse.Namespace, lucene: Lucene | None
) -> dict[str, Any]:
    """The reports of building and searching; of a failure what was said last."""
    index, found = _emptied(data.folder / "index"), data.folder / "found"
    found.mkdir(exist_ok=True)
    spec = {
        **_spec(name, data, options),
        "found": str(found),
        "index": str(index),
        "ks": options.ks,
        "sample": options.sample,
        "cpu_limit": options.cpu_limit,
    }
    report: dict[str, Any] = {}
    try:
        for phase in ("build", "search"):
            spec["phase"] = phase
            if name == "lucene":
                assert lucene is not None
                done = (
                    lucene.build(spec, data, options.cores)
                    if phase == "build"
                    else lucene.search(spec, data, options.cores)
                )
            else:
                done = run_phase(spec, options.cores)
            if phase == "build":
                done |= {"passages": data.passages, "index_bytes": _size_of(index)}
            report[phase] = done
    except Failed as error:
        report["failed"] = str(error)
    shutil.rmtree(index)
    return report


def _spec(name: str, data: DataSet, options: argparse.Namespace) -> dict[str, Any]:
    scratch = options.work / "scratch"
    scratch.mkdir(exist_ok=True)
    return {
        "engine": name,
        "data": str(data.folder.resolve()),
        "scratch": str(scratch.resolve()),
        "probe": str(options.probe.resolve()),
        "lengths": options.lengths,
    }


def _measure_whole(words: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What tasklm did with the corpus as it is, with all cores."""
    data = make_data(words, options.work, 1000, options.lengths, 2, options.seed)  # to compile on
    store, index = _emptied(options.work / "whole-store"), _emptied(options.work / "whole-index")
    spec = _spec("ours", data, options) | {
        "corpus": str(options.corpus.resolve()),
        "store": str(store.resolve()),
    }
    spec |= {"index": str(index.resolve()), "task": str(options.task.resolve()), "k": 500}
    cores = len(os.sched_getaffinity(0))
    report: dict[str, Any] = {"cores": cores}
    try:
        for phase in ("store", "index", "search"):
            report[phase] = run_phase(spec | {"phase": f"whole_{phase}"}, cores)
            if phase == "index":
                report[phase]["index_bytes"] = _size_of(index)
            _say(f"whole corpus, {phase}: {json.dumps(report[phase])}")
    except Failed as error:
        raise RunError(f"the whole corpus failed: {error}") from None
    shutil.rmtree(store)
    shutil.rmtree(index)
    return report


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _about(options: argparse.Namespace) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "machine": f"{model}, Python {platform.python_version()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "corpus": options.corpus.name,
        "cores": f"{options.cores} core{'s' if options.cores > 1 else ''}",
        "shortest": SHORTEST,
        "longest": LONGEST,
        "limit": options.cpu_limit,
        "sample": options.sample,
        "queries": options.queries,
        "seed": options.seed,
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
