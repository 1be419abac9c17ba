"""A folder with the files that the pages speak of, a finished run, and the command line with small
trainings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tests.conftest import labelled, sentences
from tests.docs.page_files import write_files, write_kinds
from tests.docs.small import keep_small


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training is small."""
    keep_small(monkeypatch)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and with a finished run, runs/first."""
    folder = tmp_path_factory.mktemp("docs")
    write_files(folder)
    write_kinds(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        keep_small(patch)
        words = [
            "fit",
            "train.csv",
            "--dev",
            "dev.csv",
            "--test",
            "test.csv",
            "--corpus",
            "texts/",
            "--out",
            "runs/first",
        ]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (done.output, done.exception)
    return folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> Path:
    """An empty folder with the files, to work in."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scratch_with_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> Path:
    """A copy of the folder with the finished run, to work in."""
    folder = tmp_path / "work"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return folder


def names_of_pages() -> dict[str, Any]:
    """The names that python blocks may use without making them: texts and
    labels of somebody's own.
    """

    def pairs(count: int, seed: int) -> tuple[list[str], list[str]]:
        rows = labelled(count, seed)
        return [str(row["text"]) for row in rows], [str(row["label"]) for row in rows]

    train_texts, train_labels = pairs(60, 1)
    test_texts, test_labels = pairs(30, 3)
    return {
        "train_texts": train_texts,
        "train_labels": train_labels,
        "test_texts": test_texts,
        "test_labels": test_labels,
        "new_texts": sentences(4, 9),
        "__name__": "__page__",
    }


@pytest.fixture
def run_cli() -> Callable[[list[str]], str]:
    """Runs `tasklm WORDS` in this process and returns what it printed; anything but success fails
    the test.
    """

    def run(words: list[str]) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output

    return run
