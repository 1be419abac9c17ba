"""Small data that tests make for themselves."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.testing

from tasklm.analysis import class_vectors
from tasklm.errors import RecipeError
from tasklm.pipeline.flow import fit
from tasklm.recipe.model_sections import Tokens
from tasklm.recipe.toml import load
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary
from tasklm.tracking import SILENT, Tracker
from tasklm.train import stage_runs
from tests.charts import choose
from tests.in_memory import use_memory

use_memory()
# pictures of classes in reports are drawn with as few steps as t-SNE takes; those of
# analysis/test_class_vectors.py with as many as ever
STEPS_OF_PICTURES, class_vectors.STEPS = class_vectors.STEPS, 250
# the command line is built once, not for each command that is given to it in this process
typer.testing._get_command = functools.cache(typer.testing._get_command)

SUBJECTS = ["the cat", "a dog", "my sister", "the old farmer", "this engine", "a small bird"]
VERBS = ["likes", "sees", "hears", "follows", "remembers", "repairs"]
OBJECTS = [
    "the red ball",
    "a green field",
    "cold water",
    "the long road",
    "an empty house",
    "music",
]

# In a fresh clone one worker has most of Numba's kernels compiled in the first file; meanwhile the
# other does what needs hardly any.
FIRST = ("pipeline/test_report.py", "budget/test_costs_memory.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts two files first; the others stay in their order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    assert all(path.exists() for path in places)
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


def pytest_unconfigure() -> None:
    """Libraries tell of all that is left at the end of a process."""
    gc.unfreeze()


def pytest_collection_finish() -> None:
    """Has Python look for garbage less often, and never among modules and tests, which stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(autouse=True, scope="module")
def _charts_are_left_out(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where tests can do without them."""
    with pytest.MonkeyPatch.context() as patch:
        choose(request.path.relative_to(Path(__file__).parent), patch)
        yield


@pytest.fixture(autouse=True)
def _kernels_stay_the_same() -> Iterator[None]:
    """Every test computes alike, whatever came before it.

    A bf16 product on a CPU without units for it has PyTorch turn oneDNN off in the whole process:
    later tests would round otherwise. A run that is left to choose takes all cores, for the whole
    process too: later tests would sum in another order. What is silent would write to the
    last run, whose folder may be gone.
    """
    torch.set_num_threads(1)
    yield
    SILENT.sinks = []
    torch.backends.mkldnn.set_flags(_enabled=True)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Returns sentences of a little language."""
    draw = random.Random(seed)
    return [
        (
            f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} "
            f"{draw.choice(OBJECTS)} number {draw.randrange(1000)} ."
        )
        for _ in range(count)
    ]


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    """Writes rows to a JSONL file and returns its path."""
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def labelled(count: int, seed: int) -> list[dict[str, object]]:
    """Returns examples of a task that can be learnt: is there water or music in the sentence?"""
    rows = sentences(count, seed)
    return [
        {"text": text, "label": "yes" if "water" in text or "music" in text else "no"}
        for text in rows
    ]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """A small WordPiece vocabulary of the little language."""
    return train_vocabulary([sentences(500)], Tokens(), 300)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports modules of the benchmarks by name."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def run_verb_here(module: Any) -> Any:
    """What stands in for the processes of benchmarks that compare whole runs: the verb, in this
    process.
    """

    def run_verb(verb: str, folder: Path, threads: int | None, deadline: Any) -> None:
        try:
            fit(load(folder / "recipe.toml"), folder, Tracker(None), until=verb)
        except RecipeError as error:
            raise module("objective_runs.running").Failed(str(error)) from None

    return run_verb


@pytest.fixture(scope="module")
def speed_is_not_measured() -> Iterator[None]:
    """That of a machine takes a second per stage, to be shown beside progress."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_runs, "matmul_ceiling", lambda _: 1e9)
        yield
