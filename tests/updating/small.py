"""A little run to update, and further files for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker
from tests.conftest import write_jsonl

WORDS = {
    "sport": ["ball", "goal", "match", "team", "coach"],
    "food": ["bread", "soup", "salt", "oven", "dinner"],
    "music": ["song", "drum", "violin", "choir", "tune"],
}
OTHERS = ["the", "a", "today", "was", "some", "old", "very", "near", "with", "house"]
LINEAR = {
    "train.steps": 0,
    "finetune.epochs": 0,
    "finetune.seeds": 1,
    "evaluate.bootstrap": 100,
    "hardware.threads": 1,
    "hardware.device": "cpu",
}


def rows(labels: str, count: int, seed: int) -> list[dict[str, object]]:
    """Sentences of some classes, which have words of their own."""
    draw, names = random.Random(seed), labels.split()
    made: list[dict[str, object]] = []
    for number in range(count):
        label = names[number % len(names)]
        words = [*draw.choices(OTHERS, k=5), *draw.choices(WORDS[label], k=2)]
        draw.shuffle(words)
        made.append({"text": f"{' '.join(words)} {draw.randrange(10_000)}", "label": label})
    return made


def write_files(folder: Path) -> None:
    """The files of the first run, and further ones: more rows, and rows of a new class."""
    files = {
        "train": rows("sport food", 60, 1),
        "dev": rows("sport food", 20, 2),
        "test": rows("sport food", 30, 3),
        "more": rows("sport food", 24, 4),
        "new-class": rows("sport food music", 90, 5),
        "new-test": rows("music", 12, 6),
    }
    for name, own in files.items():
        write_jsonl(folder / f"{name}.jsonl", own)


def first_run(folder: Path, **more: Any) -> Path:
    """A run on these files, whose model is the linear one."""
    write_files(folder)
    keys = {f"data.{name}": str(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    settings = {**LINEAR, **keys, **{key.replace("__", "."): one for key, one in more.items()}}
    fit(load(None, settings), folder / "run", Tracker())
    return folder / "run"
