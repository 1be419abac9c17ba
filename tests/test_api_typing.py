"""A user's program that calls every public method passes mypy's strict checks, and mypy knows what
the methods return.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PROGRAM = """
from pathlib import Path

import numpy as np

from tasklm import DamagedError, DataError, RecipeError, RunError, TaskLM, TaskLMError, TrainingError, check_files, forecast, verify_bill

model = TaskLM([Path("texts"), "more/*.txt"], minutes=1.5, recipe=Path("r.toml"), settings={"select.k": 5}, out="runs/x", verbose=True)
reveal_type(model.fit(Path("train.csv"), dev="dev.csv", test=Path("test.csv")))
model.fit(["a", "b"], ["x", "y"], corpus="texts")
model.fit(np.array(["a", "b"]), np.array([0, 1]))
model.fit([("a", "b"), ("c", "d")], [0.5, 1.0])
reveal_type(model.predict(["a", ("a", "b"), {"text": "a"}]))
reveal_type(model.predict_proba(["a"]))
reveal_type(model.answers(["a"]))
reveal_type(model.score(["a"], np.array(["x"]), metric="accuracy"))
model.fit({"rte": "RTE/", "sst2": Path("SST-2")})
model.predict_proba(["a"], task="rte")
model.predict([Path("photo.png"), np.zeros((32, 32, 3))])
model.answers(model.predict(["a"], task="sst2"), task="all")
model.explain("a", task="rte")
why = model.explain("a", top=2)
reveal_type(why)
reveal_type(why.examples.supporting[0].score)
model.label_next(["a", "b"], n=1)[0]["reason"]
model.label_next("pile.csv", task="rte")
model.predict_sets(["a"], coverage=0.9)
model.update("more.csv", corpus=["texts"], dev=Path("dev.csv"))
reveal_type(model.report("x.html"))
open(model.report())
model.save("folder")
reveal_type(TaskLM.load(Path("folder")))
reveal_type(model.scores_)
reveal_type(model.classes_)
reveal_type(model.get_params())
reveal_type(model.bill())
reveal_type(model.bill().bill.corpus[0].sha256)
reveal_type(verify_bill("runs/x").problems[0].path)
reveal_type(check_files("runs/x").damaged[0].remedy)
reveal_type(forecast(Path("train.csv"), corpus=["texts"], dev="dev.csv", seconds=30).trained[0].labels.low)
errors: list[type[TaskLMError]] = [DamagedError, DataError, RecipeError, RunError, TrainingError]
"""
REVEALED = [
    r"tasklm\.api\.estimator\.TaskLM",
    r"numpy\.ndarray\[.*\] \| list\[Any\]",
    r"numpy\.ndarray\[.*float64.*\]",
    r"list\[dict\[str, Any\]\]",
    r"float",
    r"tasklm\.notebook\.ShownExplanation",
    r"float",
    r"tasklm\.notebook\.Report",
    r"tasklm\.api\.estimator\.TaskLM",
    r"tasklm\.evaluate\.scores\.Scores \| None",
    r"numpy\.ndarray\[.*\]",
    r"dict\[str, Any\]",
    r"tasklm\.notebook\.ShownBill",
    r"str",
    r"str",
    r"str",
    r"float",
]
WRONG = """
from tasklm import TaskLM

model = TaskLM(minutes="long")
model.predct(["a"])
model.score(["a"], ["x"]) + "x"
"""


# The modules that say what a user gets are read; the rest of the package, and what is large and not
# asked about, is not: it takes long.
READ = (
    "tasklm",
    "tasklm.api.estimator",
    "tasklm.api.verbs",
    "tasklm.notebook",
    "tasklm.bill.record",
    "tasklm.errors",
    "tasklm.evaluate.scores",
    "tasklm.forecasting.forecast",
    "tasklm.influence.evidence",
    "tasklm.pipeline.bill_check",
    "tasklm.pipeline.file_check",
    "tasklm.serve.inputs",
    "tasklm.tasks.base",
)
SETTINGS = "[mypy]\n" + "".join(
    f"[mypy-{name}]\nfollow_imports = skip\n"
    for name in ("tasklm.*", "torch.*", "rich.*", "sklearn.*")
)
SETTINGS += "".join(f"[mypy-{name}]\nfollow_imports = silent\n" for name in READ)


def mypy(tmp_path: Path, program: str) -> str:
    """What mypy's strict checks say about a program of somebody who has tasklm installed."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "mypy.ini",
        "--cache-dir",
        "cache",
    ]
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    return subprocess.run(
        [*command, str(file)], cwd=tmp_path, env=environment, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What mypy says about the right program and about the wrong one."""
    pytest.importorskip(
        "mypy",
        reason=(
            "mypy is not installed: THE TYPES OF THE API "
            "ARE NOT CHECKED. Install it: pip install '.[dev]'"
        ),
    )
    folder = tmp_path_factory.mktemp("mypy")
    return mypy(folder, PROGRAM), mypy(folder, WRONG)


def test_a_program_with_every_method_passes_and_types_are_known(said: tuple[str, str]) -> None:
    errors = [line for line in said[0].splitlines() if "error:" in line]
    assert not errors, said[0]
    revealed = [
        line.split('Revealed type is "')[1].rstrip('"')
        for line in said[0].splitlines()
        if "Revealed type" in line
    ]
    assert len(revealed) == len(REVEALED), said[0]
    for found, wanted in zip(revealed, REVEALED, strict=True):
        assert re.fullmatch(wanted, found.replace("builtins.", "")), (found, wanted)


def test_mistakes_are_seen(said: tuple[str, str]) -> None:
    assert (
        "minutes" in said[1] and 'has no attribute "predct"' in said[1] and "operator" in said[1]
    ), said[1]


def test_the_program_calls_every_public_method() -> None:
    from tasklm import TaskLM

    own = {
        name: value
        for name, value in vars(TaskLM).items()
        if inspect.isfunction(value) or isinstance(value, classmethod)
    }
    methods = [name for name in own if not name.startswith("_")]
    assert len(methods) > 7
    for name in methods:
        assert f".{name}(" in PROGRAM, f"the program does not call {name}"
        missing = [
            p
            for p in inspect.signature(getattr(TaskLM, name)).parameters.values()
            if p.annotation is p.empty and p.name != "self"
        ]
        assert not missing, f"{name} has parameters without a type: {missing}"
