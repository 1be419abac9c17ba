"""What commands import before they answer: what they do not need, nobody waits for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasklm.encoders.base import Shape
from tasklm.models.task_model import ModelDescription, TaskModel, new_encoder, save_models
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import labelled

SLOW = {
    *(
        "torch",
        "numpy",
        "scipy",
        "sklearn",
        "joblib",
        "numba",
        "pyarrow",
        "tokenizers",
        "transformers",
        "pyspark",
    ),
    *(
        "matplotlib",
        "onnx",
        "onnxruntime",
        "fastapi",
        "tensorboard",
        "torch._dynamo",
        "torch._inductor",
        "sympy",
    ),
}
NEEDED = {"torch", "numpy", "scipy", "tokenizers"}  # by a model with a wide part
LENGTH = 16
LIST_MODULES = (
    "import atexit, json, sys; atexit.register(lambda: print(json.dumps(sorted(sys.modules))));"
)


def imported(code: str, *words: str) -> tuple[set[str], list[str]]:
    """The modules that a new Python has at its end, and the lines that it printed before."""
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES + code, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, modules = done.stdout.splitlines()
    return set(json.loads(modules)), lines


def command(*words: str) -> tuple[set[str], list[str]]:
    return imported("from tasklm.cli.app import main; main()", *words)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """A model of random weights with a fitted wide part."""
    examples = [Example((str(row["text"]),), str(row["label"])) for row in labelled(60, 1)]
    task = TASKS.get("classify").from_examples(examples, Kind())
    wide = task.fit_wide(examples, examples, "accuracy").wide
    shape = Shape(len(vocabulary), 1, 32, 2, 64, LENGTH)
    network = TaskModel(new_encoder("bert", shape), task.head(shape.width, 0.0), wide=True)
    folder = tmp_path_factory.mktemp("start") / "model"
    save_models(
        folder,
        ModelDescription("bert", shape, task, vocabulary, LENGTH),
        [network],
        {"metric": "accuracy"},
        wide,
    )
    return folder


def test_importing_the_package_imports_nothing_slow() -> None:
    modules, _ = imported("import tasklm; tasklm.TaskLMError")
    assert "tasklm" in modules and not modules & {*SLOW, "typer", "rich", "pydantic"}


@pytest.mark.parametrize(
    "words",
    [(), ("fit",), ("predict",), ("check",), ("serve",), ("export",), ("explain",), ("forecast",)],
)
def test_help_imports_nothing_slow(words: tuple[str, ...]) -> None:
    modules, lines = command(*words, "--help")
    assert lines[0].startswith("Usage: ") and not modules & SLOW


def test_predicting_imports_what_the_model_needs(model: Path) -> None:
    modules, lines = command("predict", str(model), "the dog likes water")
    assert set(json.loads(lines[0])["probabilities"]) == {"no", "yes"}
    assert "tasklm.tasks.baselines.wide" in modules and modules & SLOW == NEEDED
