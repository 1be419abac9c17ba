"""What the command lines of several benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.storage.files import read_json, write_json


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The reader of an argument that names some of `known`, joined by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}"
            )
        return names

    return read


def parser_of_runs(description: str | None) -> argparse.ArgumentParser:
    """The arguments of a benchmark that trains models of tasks: its data, and how to train."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder for runs and results")
    add("--data", type=Path, required=True, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--corpus", required=True, help="file, folder or glob of raw text")
    add("--recipe", type=Path, help="recipe to start from")
    add("--extra", default="", help='further options: --extra="--budget.flops 3e16"')
    add("--write", action="store_true", help="also write the page of the documentation")
    return parser


def settings_of(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The named options, by which runs of a work folder are alike; a recipe by its file's name."""
    recipe = options.recipe.name if options.recipe else ""
    return {**{name: getattr(options, name) for name in names}, "recipe": recipe}


def require_same(file: Path, settings: dict[str, Any]) -> None:
    """Refuses a work folder whose runs are of other settings, which this file of it has."""
    if file.exists() and read_json(file) != settings:
        raise RunError(f"{file} has other settings: {read_json(file)}. Name another --work.")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, settings)
