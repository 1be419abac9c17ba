"""A folder with the files that the pages speak of, and a pipeline that keeps every training as small as can be."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tasklm.api
import tasklm.pipeline
from tasklm.cli import app
from tasklm.evaluate.scores import Scores
from tasklm.recipe import Recipe
from tasklm.tracking import Tracker
from tests.conftest import labelled, sentences

# Laid over every recipe of a page, whatever it asks for: seconds in place of its minutes.
SMALL: dict[str, dict[str, Any]] = {
    "model": {"encoder": "bert", "size": "tiny", "layers": 1, "width": 32, "heads": 2, "feedforward": None, "embedding": None},
    "tokens": {"length": 32, "vocabulary": 400},
    "select": {"k": 5, "passages": 40},
    "train": {"steps": 6, "batch": 8, "checkpoint_seconds": 1000.0},
    "finetune": {"epochs": 1, "seeds": 1, "batch": 32},
    "evaluate": {"bootstrap": 100},
    "budget": {"minutes": None, "flops": None},
    "hardware": {"device": "cpu", "precision": "fp32", "threads": 1, "compile": "off"},
}  # fmt: skip
run_in_full = tasklm.pipeline.fit


def small_run(recipe: Recipe, folder: Path, tracker: Tracker, until: str = "report") -> Scores | None:
    """Runs the real pipeline on the recipe with small numbers in it."""
    return run_in_full(recipe.changed(**SMALL), folder, tracker, until)


def write_files(folder: Path) -> None:
    """Writes the files that the pages name: labelled tables, texts, lists of candidates."""
    for name, count, seed in (("train", 60, 1), ("dev", 30, 2), ("test", 30, 3)):
        rows = [f'"{row["text"]}",{row["label"]}\n' for row in labelled(count, seed)]
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    (folder / "texts").mkdir()
    for number in range(20):
        (folder / "texts" / f"{number}.txt").write_text("\n\n".join(" ".join(sentences(6, 100 * number + i)) for i in range(5)), "utf-8")
    (folder / "texts.txt").write_text("".join(f"{line}\n" for line in sentences(3, 7)), encoding="utf-8")
    (folder / "new.txt").write_text("".join(f"{line}\n" for line in sentences(3, 8)), encoding="utf-8")
    draw = random.Random(0)
    for name in ("lists.jsonl", "dev-lists.jsonl"):
        lists = [
            {"id": i, "candidates": [{"text": text, "score": draw.uniform(-2, 0)} for text in sentences(3, i)], "answer": 0}
            for i in range(4)
        ]
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8")


def keep_small(patch: pytest.MonkeyPatch) -> None:
    """Makes every training small, by the command line and in Python, and leaves out measuring the machine, which takes longer."""
    patch.setattr("tasklm.pipeline.fit", small_run)
    patch.setattr(tasklm.api, "run_pipeline", small_run)
    patch.setattr("tasklm.train.stages.matmul_ceiling", lambda machine: 1e10)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training is small."""
    keep_small(monkeypatch)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and with a finished run, runs/first."""
    folder = tmp_path_factory.mktemp("docs")
    write_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        keep_small(patch)
        words = ["fit", "train.csv", "--dev", "dev.csv", "--test", "test.csv", "--corpus", "texts/", "--out", "runs/first"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (done.output, done.exception)
    return folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> Iterator[Path]:
    """An empty folder with the files, to work in."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.fixture
def scratch_with_run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> Path:
    """A copy of the folder with the finished run, to work in."""
    folder = tmp_path / "work"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return folder


def value_of(word: str) -> str:
    """Returns what stands for a placeholder of the pages."""
    if word == "PASSAGE-ID":
        return str(pq.read_table("runs/first/selected/selected.parquet")["id"][0].as_py())
    return word


def names_of_pages() -> dict[str, Any]:
    """Returns the names that python blocks may use without making them: texts and labels of somebody's own."""

    def pairs(count: int, seed: int) -> tuple[list[str], list[str]]:
        rows = labelled(count, seed)
        return [str(row["text"]) for row in rows], [str(row["label"]) for row in rows]

    train_texts, train_labels = pairs(60, 1)
    test_texts, test_labels = pairs(30, 3)
    return {
        "train_texts": train_texts, "train_labels": train_labels, "test_texts": test_texts, "test_labels": test_labels,
        "new_texts": sentences(4, 9), "__name__": "__page__",
    }  # fmt: skip


@pytest.fixture
def run_cli() -> Callable[[list[str]], str]:
    """Runs `tasklm WORDS` in this process and returns what it printed; anything but success fails the test."""

    def run(words: list[str]) -> str:
        done = CliRunner().invoke(app, [value_of(word) for word in words])
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output

    return run
