"""What the bill of text costs, and what its verification finds, on real text.

    python benchmarks/text_bill.py --corpus "CORPUS/*.jsonl.zst" --work /tmp/bill

Some rows of each file become a corpus, and a few later ones a labelled set whose classes are the
names of the files. A small model is trained on both. Then reading the corpus is timed with and
without its hashes, and hashing it again beside sha256sum. Each file of the bill is changed in
several ways, with its time of change set back, as a failing disk or an unnoticed edit leaves it:
`tasklm bill --verify` must name this file and no other. Last the recipe of the bill trains the
model again. It exits with 1 if a change is not found, another file is named, or the weights differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from durability.harm import HARMS, harmed
from tasklm import verify_bill
from tasklm.bill.record import read_bill
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.sources import find_files, read_documents
from tasklm.corpus.store import build_store
from tasklm.pipeline.bill_check import Named, Verification, hash_files, named_files
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT

LABELLED = {"train": 40, "dev": 20}  # rows of each file
GONE = "gone"  # the change that takes a file away
SETTINGS = {
    "model.size": "tiny",
    "tokens.length": "64",
    "train.steps": "20",
    "finetune.epochs": "1",
    "finetune.seeds": "1",
    "evaluate.baselines": "false",
    "evaluate.bootstrap": "100",
    "data.leaks": "drop",
    "hardware.device": "cpu",
    "hardware.precision": "fp32",
    "hardware.threads": "1",
}


@dataclass
class Found:
    """How many changes of a kind there were, and who noticed them."""

    changes: int = 0
    bill: int = 0  # named this file, and no other
    sha256sum: int = 0
    size_and_time: int = 0


class NoHash:
    """Stands for a hash while reading is timed without one."""

    def update(self, _: object) -> None:
        """Takes nothing in."""

    def hexdigest(self) -> str:
        """Something that is not empty."""
        return "-"


def write_data(corpus: Sequence[str], work: Path, rows: int) -> dict[str, str]:
    """Writes the corpus and the labelled set; returns the recipe keys that name them."""
    (work / "texts").mkdir(parents=True)
    labelled: dict[str, list[dict[str, str]]] = {name: [] for name in LABELLED}
    for path in find_files(corpus):
        name = path.name.partition(".")[0]
        documents = iter(read_documents(path, ""))
        own = [{"text": document.text} for document in islice(documents, rows)]
        _write(work / "texts" / f"{name}.jsonl", own)
        for split, count in LABELLED.items():
            some = islice(documents, count)
            labelled[split] += [{"text": one.text[:500], "label": name} for one in some]
    for split, examples in labelled.items():
        _write(work / f"{split}.jsonl", examples)
    keys = {f"data.{split}": str(work / f"{split}.jsonl") for split in LABELLED}
    return {**SETTINGS, **keys, "data.corpus": str(work / "texts")}


def _write(path: Path, rows: Sequence[dict[str, str]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def shortest(work: Callable[[], object], rounds: int) -> float:
    """The seconds of the shortest of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def times_of(folder: Path, named: Sequence[Named], run: Path, rounds: int) -> dict[str, float]:
    """Seconds of reading a corpus, and of hashing what a bill names."""
    text = CorpusText(tuple(find_files([str(folder / "texts")])))
    paths = [one.path for one in named]

    def read() -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        (folder / "store").mkdir()
        build_store(folder / "store", text, SILENT, processes=1)

    def read_without_hashes() -> None:
        with patch("tasklm.corpus.file_reading.hashlib.sha256", NoHash):
            read()

    def hash_again() -> None:
        with SILENT.progress("hashing", 0) as bar:
            hash_files(named, Verification(), bar)

    return {
        "reading the corpus into passages, with hashes": shortest(read, rounds),
        "reading the corpus into passages, without hashes": shortest(read_without_hashes, rounds),
        "hashing the files again": shortest(hash_again, rounds),
        "sha256sum of the same files": shortest(lambda: _sha256sum(paths), rounds),
        "`tasklm bill --verify`, with the artefacts of the run": shortest(
            lambda: verify_bill(run), rounds
        ),
    }


def _sha256sum(words: Sequence[str], **given: Any) -> int:
    command = ["sha256sum", *words]
    return subprocess.run(command, capture_output=True, check=False, **given).returncode


def found(run: Path, named: Sequence[Named], seed: int) -> dict[str, Found]:
    """Changes each file in each way, and counts who notices."""
    listed = "".join(f"{one.sha256}  {one.path}\n" for one in named)
    counts = {kind: Found() for kind in (*HARMS, GONE)}
    for one in named:
        path = Path(one.path)
        for kind, count in counts.items():
            before = path.stat()
            with changed(path, kind, random.Random(f"{path.name} {kind} {seed}")):
                problems = [Path(problem.path) for problem in verify_bill(run).problems]
                count.changes += 1
                count.bill += problems == [path]
                count.sha256sum += _sha256sum(["--check"], input=listed.encode()) != 0
                count.size_and_time += not path.exists() or _state(path) != _state(before)
    return counts


def _state(about: Path | os.stat_result) -> tuple[int, int]:
    values = about.stat() if isinstance(about, Path) else about
    return values.st_size, values.st_mtime_ns


@contextmanager
def changed(path: Path, kind: str, draw: random.Random) -> Iterator[None]:
    """A file with another content, or without one, for a while."""
    content, about = path.read_bytes(), path.stat()
    times = about.st_atime_ns, about.st_mtime_ns
    if kind == GONE:
        path.unlink()
    else:
        path.write_bytes(harmed(content, kind, draw))
        os.utime(path, ns=times)
    try:
        yield
    finally:
        path.write_bytes(content)
        os.utime(path, ns=times)


def is_trained_again(run: Path, folder: Path) -> bool:
    """Whether the recipe in a bill gives the same weights."""
    bill = read_bill(run)
    folder.mkdir()
    (folder / "recipe.toml").write_text(bill.recipe, encoding="utf-8")
    fit(load(folder / "recipe.toml"), folder / "run", SILENT, until="evaluate")
    return bool(read_bill(folder / "run").model["sha256"] == bill.model["sha256"])


def show(megabytes: float, times: dict[str, float], counts: dict[str, Found], again: bool) -> None:
    """Prints the tables."""
    print(f"\n{megabytes:.1f} MB in the files of the bill\n\n| | seconds | MB/s |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.3f} | {megabytes / seconds:,.0f} |")
    head = ("change", "files", "bill --verify", "sha256sum --check", "size and time")
    print(f"\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for kind, count in counts.items():
        cells = (count.changes, count.bill, count.sha256sum, count.size_and_time)
        print(f"| {kind} | {' | '.join(map(str, cells))} |")
    print(f"\nthe recipe of the bill gives the same weights: {'yes' if again else 'no'}")


def main() -> None:
    """Prints the tables of one run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", required=True, nargs="+", help="files, folders or globs")
    parser.add_argument("--work", type=Path, required=True, help="a folder to make and work in")
    parser.add_argument("--rows", type=int, default=1000, help="of each file of the corpus")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    given = write_data(options.corpus, options.work, options.rows)
    run = options.work / "runs" / "first"
    fit(load(None, given), run, SILENT, until="evaluate")
    named = list(dict.fromkeys(named_files(read_bill(run))))
    megabytes = sum(Path(one.path).stat().st_size for one in named) / 1e6
    times = times_of(options.work, named, run, options.rounds)
    counts = found(run, named, seed=1)
    again = is_trained_again(run, options.work / "again")
    show(megabytes, times, counts, again)
    sys.exit(not again or any(one.bill != one.changes for one in counts.values()))


if __name__ == "__main__":
    main()
