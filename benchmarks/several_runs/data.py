"""The tasks of several_tasks.py: their metrics, and files without text that another task scores.

All strategies read the same files: a model of one task alone, and one that teaches others, must not
have seen what a model of all tasks may not see.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.streams import Source
from tasklm.errors import RunError
from tasklm.recipe.data_sections import Data
from tasklm.storage.files import read_json, write_bytes, write_json
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.several import cross_leaks, example_key
from tasklm.tasks.readers.splits import read_splits, resolved

SPLITS = ("train", "dev", "test")
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
TASKS = (*GLUE, "sick_entail")
METRICS = {"cola": "matthews", "stsb": "spearman"}  # of the others: accuracy
USUAL = "accuracy"
RECORD = "prepared.json"


@dataclass(frozen=True)
class Cut:
    """How much of each task is used: examples of train, and of dev and test; None: all."""

    labels: int | None = None
    scored: int | None = None


def metric_of(task: str) -> str:
    """The metric of the thesis for a task."""
    return METRICS.get(task, USUAL)


def metrics_of(tasks: Sequence[str]) -> str:
    """evaluate.metric for several tasks."""
    return ",".join([USUAL, *(f"{name}={METRICS[name]}" for name in tasks if name in METRICS)])


def source_of(data: Path, name: str) -> Path | None:
    """The folder of a task's files, by its name or with glue_ before it; None if there is none."""
    for folder in (data / name, data / f"glue_{name}"):
        if (folder / "train.jsonl.gz").is_file() and (folder / "dev.jsonl.gz").is_file():
            return folder
    return None


def prepare(data: Path, names: Sequence[str], folder: Path, cut: Cut) -> dict[str, Any]:
    """Writes the files of all tasks, unless they are there, and returns what each has and lost."""
    about = {"tasks": list(names), "labels": cut.labels, "scored": cut.scored}
    done = folder / RECORD
    if done.exists():
        record: dict[str, Any] = read_json(done)
        if record["about"] != about:
            raise RunError(
                f"{folder} has other tasks or cuts: {record['about']}. Name another --work."
            )
        return dict(record["tasks"])
    sources = {name: source_of(data, name) for name in names}
    if missing := [name for name, source in sources.items() if source is None]:
        needed = "NAME/train.jsonl.gz and NAME/dev.jsonl.gz"
        raise RunError(f"{data} lacks {', '.join(missing)}: each needs {needed}.")
    lines = {name: _lines_of(source) for name, source in sources.items() if source is not None}
    splits = {
        name: _read(source, lines[name]) for name, source in sources.items() if source is not None
    }
    across = without_leaks(splits)
    tasks = {}
    for name, own in splits.items():
        left = {
            "train": by_hash(own.train, cut.labels),
            "dev": by_hash(own.dev, cut.scored),
            "test": by_hash(own.test, cut.scored),
        }
        for split, examples in left.items():
            if examples:
                rows = [lines[name][split][example.line - 1] for example in examples]
                _write(folder / name / f"{split}.jsonl.gz", rows)
        tasks[name] = {
            "examples": {split: len(examples) for split, examples in left.items()},
            "dropped": {
                "own": len(lines[name]["train"]) - len(own.train) - across[name],
                "across": across[name],
            },
        }
    write_json(done, {"about": about, "tasks": tasks})
    return tasks


def without_leaks(splits: Mapping[str, Splits]) -> dict[str, int]:
    """Leaves out of each train what another task scores, and returns how many examples that is."""
    scored: dict[str, set[Any]] = {name: set() for name in splits}
    for leak in cross_leaks(splits):
        scored[leak.trained] |= {example_key(one) for one, _ in leak.examples}
    dropped = {}
    for name, own in splits.items():
        left = [example for example in own.train if example_key(example) not in scored[name]]
        dropped[name] = len(own.train) - len(left)
        own.train = left
    return dropped


def by_hash(examples: Sequence[Example], most: int | None) -> list[Example]:
    """At most so many examples, those with the lowest hashes of their texts, in the order given.

    A smaller number is part of a larger one. Of a class that these lack, its lowest comes too.
    """
    if most is None or len(examples) <= most:
        return list(examples)
    lowest = sorted(examples, key=lambda example: (text_key(example.text), example.line))
    chosen = lowest[:most]
    classes = {str(one.label) for one in chosen if isinstance(one.label, str)}
    for example in lowest[most:]:
        if isinstance(example.label, str) and example.label not in classes:
            classes.add(example.label)
            chosen.append(example)
    lines = {id(example) for example in chosen}
    return [example for example in examples if id(example) in lines]


def _lines_of(source: Path) -> dict[str, list[str]]:
    """The lines of each split; those of a test set without labels are left out."""
    files = {split: source / f"{split}.jsonl.gz" for split in SPLITS}
    lines = {split: _lines(file) for split, file in files.items() if file.exists()}
    first = {split: json.loads(part[0]).keys() for split, part in lines.items()}
    if "test" in first and first["test"] < first["train"]:
        del lines["test"]
    return lines


def _read(source: Path, splits: Iterable[str]) -> Splits:
    files = {split: str(source / f"{split}.jsonl.gz") for split in splits}
    return read_splits(resolved(Data(**files, leaks="drop")))


def _lines(file: Path) -> list[str]:
    with Source(file, None) as stream:
        return stream.read().decode("utf-8").rstrip("\n").split("\n")


def _write(file: Path, lines: Sequence[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, gzip.compress(content, 9, mtime=0))
