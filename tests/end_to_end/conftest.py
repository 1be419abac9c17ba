"""A small task and corpus in files, and a recipe that trains on them in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklm.recipe.toml import dump, load
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.forking import Commands, forked

QUICK = {
    "model.size": "tiny",
    "model.layers": "1",
    "model.width": "32",
    "model.heads": "2",
    "tokens.length": "32",
    "tokens.vocabulary": "400",
    "train.steps": "40",
    "train.batch": "16",
    "finetune.epochs": "3",
    "finetune.seeds": "2",
    "select.k": "20",
    "train.learning_rate": "0.003",
    "finetune.learning_rate": "0.003",
    "finetune.batch": "16",
    "evaluate.bootstrap": "100",
    "finetune.wide": "false",  # alone it would solve these tasks, and the network learn nothing
    "hardware.device": "cpu",
    "hardware.precision": "fp32",
    "hardware.threads": "1",
}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, dev, test and corpus."""
    folder = tmp_path_factory.mktemp("data")
    for name, count, seed in (("train", 160, 1), ("dev", 60, 2), ("test", 80, 3)):
        write_jsonl(folder / f"{name}.jsonl", labelled(count, seed))
    rows = [{"text": " ".join(sentences(8, 100 + i)), "source": f"s{i % 3}"} for i in range(300)]
    write_jsonl(folder / "corpus.jsonl", rows)
    return folder


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """What starts commands that can be killed."""
    with forked() as started:
        yield started


def options(files: Path, **changes: str) -> dict[str, str]:
    """Returns dotted keys of a quick run on the files."""
    data = {
        f"data.{name}": str(files / f"{name}.jsonl") for name in ("train", "dev", "test", "corpus")
    }
    return {**data, **QUICK, **{key.replace("__", "."): value for key, value in changes.items()}}


def until(step: str, given: dict[str, str], folder: Path) -> list[str]:
    """The words of the command that does a run up to a step; its recipe is in
    the folder already.
    """
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(dump(load(None, given)), encoding="utf-8")
    return [step, str(folder)]
