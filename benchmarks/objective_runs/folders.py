"""The run folders: one per task for the text, one per objective; what they are asked and what they
found.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.errors import RecipeError, RunError
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.recipe.toml import absolute, dump
from tasklm.storage.files import (
    digest,
    file_digest,
    read_json,
    require_file,
    write_json,
    write_text,
)
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary

SHARED = ("decontaminated", "ranking", "selected", "tokens")  # artefacts that no objective changes
_DECIDED = {"train.objective", "train.steps", "budget.flops", "budget.minutes"}
_OF_THE_MACHINE = ("data", "hardware")


@dataclass(frozen=True)
class Case:
    """A task: its name on the page, the folder of its three splits, and the metric that is
    reported.
    """

    name: str
    folder: Path
    metric: str


@dataclass(frozen=True)
class Text:
    """The selected text that all objectives of a task see."""

    recipe: Recipe  # with passages and batch as they were decided
    folder: Path
    keys: dict[str, str]
    about: dict[str, Any]


def base_recipe(
    case: Case, corpus: list[str], flops: float, asked: dict[str, Any], cache: Path
) -> Recipe:
    """The recipe that the objectives of a task share; `asked` holds dotted keys."""
    if taken := sorted(_DECIDED & set(asked)):
        raise RecipeError(
            [
                f"--set {name}: this benchmark decides it; choose with --objectives and --flops"
                for name in taken
            ]
        )
    files = {
        split: require_file(case.folder / f"{split}.jsonl.gz", "Name another folder with --task.")
        for split in ("train", "dev", "test")
    }
    values = {f"data.{split}": str(path.resolve()) for split, path in files.items()}
    values |= {
        "data.corpus": corpus,
        "evaluate.metric": case.metric,
        "budget.flops": flops,
        "hardware.cache": str(cache.resolve()),
    }
    return absolute(from_dict(with_overrides({}, {"model.size": "tiny", **values, **asked})))


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Makes a run folder with this recipe."""
    write_text(folder / "recipe.toml", dump(recipe))


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Returns dotted keys → values where the recipe differs from the defaults; data and machine are
    left out.
    """
    usual, found = to_dict(Recipe()), {}
    for section, values in to_dict(recipe).items():
        if section not in _OF_THE_MACHINE:
            found |= {
                f"{section}.{name}": value
                for name, value in values.items()
                if value != usual[section][name]
            }
    return found


def made_text(folder: Path, recipe: Recipe) -> Text:
    """The text that `tasklm tokenize` has made in a folder, with passages and batch fixed for the
    objectives.
    """
    plan, artefacts = read_json(folder / "plan" / "plan.json"), Artefacts(folder)
    shards = Shards.open(folder / "tokens")
    fixed = {
        "select": {"k": plan["k"], "passages": plan["passages"]},
        "train": {"batch": plan["batch"]},
    }
    about = {
        "passages": len(shards),
        "tokens": int(shards.offsets[-1]),
        "vocabulary": len(Vocabulary.load(folder / "tokens" / "tokenizer.json")),
        "content": digest(
            [file_digest(folder / "tokens" / name) for name in ("tokens.bin", "tokenizer.json")]
        ),
    }
    return Text(recipe.changed(**fixed), folder, _keys(artefacts), about)


def _keys(artefacts: Artefacts) -> dict[str, str]:
    return {name: key for name in SHARED if (key := artefacts.key(name)) is not None}


def objective_recipe(text: Text, objective: str, baselines: bool, threads: int) -> Recipe:
    """The recipe of an objective: it alone differs, beside who scores the baselines.

    All begin alike: auto would favour mlm.
    """
    alike = {
        name: "random"
        for name in ("embeddings", "attention")
        if getattr(text.recipe.train, name) == "auto"
    }
    changed = text.recipe.changed(
        train={"objective": objective, **alike}, evaluate={"baselines": baselines}
    )
    return dataclasses.replace(
        changed, hardware=dataclasses.replace(changed.hardware, threads=threads)
    )


def start_folder(folder: Path, text: Text, recipe: Recipe) -> None:
    """Makes the run folder of an objective, with the text of the task as links; what an earlier
    command did there is continued.
    """
    artefacts = Artefacts(folder)
    (folder / "done.json").unlink(missing_ok=True)
    (folder / "scores.json").unlink(missing_ok=True)
    for name, key in text.keys.items():
        if artefacts.key(name) != key:
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(text.folder / name, folder / name, copy_function=os.link)
    write_recipe(folder, recipe)


def is_done(folder: Path, text: Text, recipe: Recipe) -> bool:
    """Whether the folder holds the scores of this very recipe and text."""
    done = folder / "done.json"
    return done.exists() and read_json(done)["key"] == _run_key(text, recipe)


def mark_done(folder: Path, text: Text, recipe: Recipe, about: dict[str, Any]) -> None:
    """Notes that the run is complete, and on which machine beside how many others."""
    write_json(folder / "done.json", {"key": _run_key(text, recipe), "about": about})


def _run_key(text: Text, recipe: Recipe) -> str:
    return digest(
        [
            text.keys,
            {
                section: values
                for section, values in to_dict(recipe).items()
                if section != "hardware"
            },
        ]
    )


def found_in(folder: Path, text: Text) -> dict[str, Any]:
    """What a complete run found: scores over the seeds, and what stage 1 cost."""
    keys = _keys(Artefacts(folder))
    if keys != text.keys:
        raise RunError(
            f"{folder.name} saw other text than the other "
            f"objectives: {keys} in place of {text.keys}. Delete its folder."
        )
    stage1 = read_json(folder / "stage1" / "summary.json")
    scores = read_json(folder / "scores.json")
    (ours,) = (row for row in scores["rows"] if row["kind"] == "ours")
    asked = text.recipe.budget.flops
    assert asked is not None
    return {
        "dev": ours["dev"],
        "test": ours["test"],
        "stage1": {
            **{
                name: stage1[name]
                for name in (
                    "steps",
                    "rho1",
                    "batch",
                    "tokens",
                    "seconds",
                    "learning_rate",
                    "skipped_steps",
                    "micro_batches",
                )
            },
            "flops": stage1["flops"],
            "of_asked": stage1["flops"] / asked,
            "flops_6nd": 6.0 * ours["parameters"] * stage1["tokens"],
        },
        "both_stages": {
            "flops": ours["flops_exact"],
            "flops_6nd": ours["flops_6nd"],
            "seconds": ours["seconds"],
        },
        "parameters": ours["parameters"],
        "about": read_json(folder / "done.json")["about"],
    }


def baselines_in(folder: Path) -> dict[str, Any]:
    """The baselines that a run has scored, by name; none where it was not asked to."""
    rows = read_json(folder / "scores.json")["rows"]
    return {
        row["name"]: {name: row[name] for name in ("dev", "test", "seconds")}
        for row in rows
        if row["kind"] == "baseline"
    }
