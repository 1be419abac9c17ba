"""Small studies, and data for every task that a study of the package names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

from tasklm.studying.study import Study, study_from
from tasklm.studying.worker import work
from tests.conftest import labelled, sentences, write_jsonl

QUICK = {
    "model.encoder": "bert",
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 2,
    "tokens.vocabulary": 400,
    "tokens.length": 32,
    "select.passages": 30,
    "train.steps": 4,
    "train.batch": 8,
    "finetune.epochs": 1,
    "finetune.seeds": 2,
    "evaluate.bootstrap": 100,
    "hardware.threads": 1,
    "hardware.compile": "off",
}
TAGGED = ("chunks", "names", "fine-names", "supertags")


def study(**changes: Any) -> Study:
    """A study of three rows: two share stage 1, and one is published alone."""
    values: dict[str, Any] = {
        "title": "A title",
        "source": "A paper (arXiv 0000.00000), table 1",
        "tasks": ["one", "two"],
        "rows": [
            {"name": "a", "published": {"one": 80.0, "two": 60.0}},
            {
                "name": "b",
                "recipe": {"finetune.epochs": 2},
                "published": {"one": 90.0, "average": 70.0},
            },
            {"name": "theirs", "published": {"one": 95.5}, "reference": True, "note": "dear"},
        ],
        "claims": [{"text": "More epochs are better", "better": "b", "than": "a"}],
    }
    return study_from("small", {**values, **changes})


def write_task(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> Path:
    """Writes the splits of a task."""
    folder.mkdir(parents=True)
    for split, examples in rows.items():
        write_jsonl(folder / f"{split}.jsonl", examples)
    return folder


def classes(sizes: tuple[int, ...] = (60, 24, 24)) -> dict[str, list[dict[str, Any]]]:
    """Splits of a task of two classes."""
    names = ("train", "dev", "test")
    return {
        name: labelled(size, seed)
        for seed, (name, size) in enumerate(zip(names, sizes, strict=True))
    }


def data_for(task: str) -> dict[str, list[dict[str, Any]]]:
    """Splits of the kind that a task of the package's studies has."""
    splits = classes()
    if task == "stsb":
        return {
            name: [{"text": row["text"], "score": float(at % 5)} for at, row in enumerate(rows)]
            for name, rows in splits.items()
        }
    if task in (*TAGGED, "tags", "trees"):
        return {
            name: [_sentence(task, seed) for seed in range(at * 100, at * 100 + len(rows))]
            for at, (name, rows) in enumerate(splits.items())
        }
    return splits


def _sentence(task: str, seed: int) -> dict[str, Any]:
    tokens = [*sentences(1, seed)[0].split()[:6], f"word{seed}"]
    if task in TAGGED:
        tags = ["B-X", *["I-X"] * (len(tokens) // 2)]
        return {"tokens": tokens, "tags": [*tags, *["O"] * len(tokens)][: len(tokens)]}
    return {
        "tokens": tokens,
        "upos": ["NOUN", *["VERB"] * (len(tokens) - 1)],
        "heads": [0, *[1] * (len(tokens) - 1)],
        "deprels": ["root", *["obj"] * (len(tokens) - 1)],
    }


def corpus(folder: Path) -> Path:
    """Some text."""
    return write_jsonl(folder / "corpus.jsonl", [{"text": one} for one in sentences(60, 9)])


class Here:
    """What stands in for a process: its work is done when it begins."""

    def __init__(self, command: list[str], *, stdout: BinaryIO, **_: Any) -> None:
        said = io.StringIO()
        self.stdin = None
        recipe, folder, *until = command[3:]
        self.returncode = work(Path(recipe), Path(folder), said, *until)
        stdout.write(said.getvalue().encode())

    def poll(self) -> int:
        """The status."""
        return self.returncode
