"""The cases: each is a recipe with all numbers given, which both sides read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasklm.demo.recipe import demo_recipe
from tasklm.errors import RunError
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT

DEMO = "demo"
_ALIKE: dict[str, Any] = {  # so that both sides do the same work
    "data.leaks": "drop",
    "model.encoder": "bert",
    "train.rho1": 4,
    "train.mask_rate": 0.15,
    "finetune.wide": False,
    "evaluate.compare": (),
}
_TASKS: dict[str, dict[str, Any]] = {  # folder of the task → its settings
    "acl_arc": {
        "select.k": 50,
        "select.passages": 4000,
        "tokens.vocabulary": 5000,
        "tokens.length": 128,
        "model.size": "tiny",
        "train.steps": 100,
        "train.batch": 32,
        "finetune.epochs": 2,
        "finetune.batch": 16,
        "finetune.learning_rate": 5e-4,
        "finetune.seeds": 2,
        "evaluate.metric": "macro_f1",
    },
    "chemprot": {
        "select.k": 500,
        "select.passages": 50_000,
        "tokens.vocabulary": 16_000,
        "tokens.length": 128,
        "model.layers": 4,
        "model.width": 512,
        "model.size": "medium",
        "train.steps": 3000,
        "train.batch": 256,
        "finetune.epochs": 10,
        "finetune.batch": 32,
        "finetune.learning_rate": 1e-4,
        "finetune.seeds": 3,
        "evaluate.metric": "micro_f1",
    },
}
_DEMO: dict[str, Any] = {"train.steps": 100, "finetune.epochs": 2, "finetune.seeds": 2}
CASES = (DEMO, *_TASKS)
ON_GPU = ("chemprot",)  # cases that take hours without one


def recipe_of(
    case: str, work: Path, data: Path | None, corpus: str | None, changed: Mapping[str, Any]
) -> Recipe:
    """The recipe of a case; `changed` has dotted keys, such as the steps that were asked for."""
    if case == DEMO:
        given = {**_ALIKE, **_DEMO, **changed}
        sections: dict[str, dict[str, Any]] = {}
        for dotted, value in given.items():
            section, _, key = dotted.partition(".")
            sections.setdefault(section, {})[key] = value
        return demo_recipe(work / "demo-data", SILENT).changed(**sections)
    if data is None or corpus is None:
        raise RunError(f"the case {case} needs --data and --corpus")
    files = {
        f"data.{split}": str((data / case / f"{split}.jsonl.gz").resolve())
        for split in ("train", "dev", "test")
    }
    settings = {**_ALIKE, **_TASKS[case], **changed}
    return load(None, {**files, "data.corpus": [str(Path(corpus).resolve())], **settings})
