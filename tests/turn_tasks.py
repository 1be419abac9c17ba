"""Tasks that take turns, with examples: what tests of them share."""

from __future__ import annotations

from pathlib import Path

from tasklm.recipe.schema import Recipe
from tasklm.tasks.readers.several import JoinedTasks, read_several
from tests.several_models import write_tasks

# those that share a head are classify and tag; `crf` is of kind tag, and `marked` of kind classify
NAMES = ("classify", "choice", "tag", "span", "parse", "crf", "marked")
TURNS = [("classify", "tag"), ("choice",), ("span",), ("parse",), ("crf",), ("marked",)]
OWN = {"crf": "[kind]\ncrf = true\n", "marked": '[kind]\nmarks = ["cat", "water"]\n'}
KIND_OF = {"crf": "tag", "marked": "classify"}


def turn_recipe(folder: Path, names: tuple[str, ...] = NAMES) -> Recipe:
    """The recipe of tasks whose files are written here."""
    kinds = [name for name in names if name not in OWN]
    kinds += [KIND_OF[name] for name in names if name in OWN and KIND_OF[name] not in names]
    write_tasks(folder, list(dict.fromkeys(kinds)))
    entries = []
    for name in names:
        path = folder / KIND_OF.get(name, name)
        if name in OWN:
            recipe = folder / f"{name}.toml"
            recipe.write_text(f'[data]\ntrain = "{path}"\n\n{OWN[name]}', encoding="utf-8")
            path = recipe
        entries.append(f"{name}={path}")
    return Recipe().changed(several={"tasks": entries}, data={"leaks": "keep"})


def turn_tasks(folder: Path, names: tuple[str, ...] = NAMES) -> JoinedTasks:
    """Tasks of all kinds, read from files."""
    return read_several(turn_recipe(folder, names))
