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
from tests.hostile.good_folders import write_onnx
from tests.linear_models import fitted, write_linear
from tests.serve.models import need_onnx
from tests.several_models import KINDS, joined_tasks
from tests.tasks.test_linear import VAGUE
from tests.tasks.wide_samples import labelled as of_kind
from tests.tasks.wide_samples import task_of

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
NEEDED = {"numpy", "scipy", "tokenizers"}  # by a model with a wide part
LENGTH = 16
TEXT = "the dog likes water"
GIVEN = {  # where a text alone is none
    "choice": {"question": "what ?", "options": ["a", "b"]},
    "span": {"question": "what ?", "context": "the cat sees music ."},
}
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


@pytest.fixture(scope="module")
def linear_models(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary
) -> dict[str, Path]:
    """A linear model of every kind that has one."""
    folder = tmp_path_factory.mktemp("linear")
    models = {}
    for kind in ("classify", "multilabel", "regress", "choice", "tag", "span"):
        train = of_kind(kind, 40, 1)
        task, wide = fitted(task_of(kind, train), train, train)
        models[kind] = write_linear(folder / kind, task, wide, vocabulary)
    return models


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """A linear model of several tasks."""
    folder = tmp_path_factory.mktemp("several")
    read = joined_tasks(folder / "data")[1]
    task, wide = fitted(read.task, read.splits.train, read.splits.dev)
    return write_linear(folder / "model", task, wide, vocabulary)


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


def test_many_texts_wait_for_torch(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the dog likes water\nthe cat sees music\n")
    modules, lines = command("predict", str(model), str(tmp_path / "texts.txt"))
    assert len(lines) == 2 and modules & SLOW == {*NEEDED, "torch"}


def test_kinds_of_tasks_import_no_torch() -> None:
    modules, _ = imported("from tasklm.tasks.base import TASKS; TASKS.names()")
    assert "tasklm.tasks.span" in modules and "torch" not in modules


def test_predicting_with_a_linear_model_imports_no_torch(linear_models: dict[str, Path]) -> None:
    modules, lines = command("predict", str(linear_models["classify"]), "the dog likes water")
    assert len(json.loads(lines[0])["probabilities"]) == 3
    assert modules & SLOW == NEEDED


def test_linear_models_of_every_kind_answer_without_torch(linear_models: dict[str, Path]) -> None:
    code = (
        "from pathlib import Path; from tasklm.serve.predictor import Predictor;"
        "print(*(json.dumps(Predictor(Path(folder)).answers([row]))"
        " for folder, row in json.loads(sys.argv[1])), sep=chr(10))"
    )
    given = [(str(folder), GIVEN.get(kind, TEXT)) for kind, folder in linear_models.items()]
    modules, lines = imported(code, json.dumps(given))
    assert len(lines) == len(linear_models) and all(json.loads(line) for line in lines)
    assert "torch" not in modules


def test_several_linear_models_answer_without_torch(several: Path) -> None:
    modules, lines = command("predict", str(several), TEXT, "--task", "all")
    assert set(json.loads(lines[0])["tasks"]) == set(KINDS)
    assert modules & SLOW == NEEDED


def test_in_python_a_linear_model_is_loaded_without_torch(linear_models: dict[str, Path]) -> None:
    code = "from tasklm import TaskLM; print(*TaskLM.load(sys.argv[1]).predict(['water']))"
    modules, lines = imported(code, str(linear_models["classify"]))
    assert lines[0] in VAGUE and "sklearn" in modules and not modules & {"torch", "numba"}


def test_predicting_with_an_onnx_file_imports_no_torch(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    need_onnx()
    write_onnx(tmp_path / "export", vocabulary)
    modules, lines = command("predict", str(tmp_path / "export"), "the dog likes water")
    assert set(json.loads(lines[0])["probabilities"]) == {"no", "yes"}
    assert modules & SLOW == {"numpy", "tokenizers", "onnxruntime"}
