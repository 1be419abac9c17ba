"""The arms of recipes.py: a table of options for each, and the recipe of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.errors import RecipeError
from tasklm.recipe.schema import Recipe, to_dict
from tasklm.recipe.toml import absolute, load
from tasklm.storage.files import digest

BASE = "base"  # the arm without options of its own
# sections that decide which text an arm reads, as tokens
OF_TEXT = ("data", "several", "kind", "select", "tokens")
Options = Mapping[str, Any]  # dotted keys → values


@dataclass(frozen=True)
class Arms:
    """What all runs share, and what each arm changes."""

    base: Options
    own: Mapping[str, Options]

    @property
    def names(self) -> list[str]:
        """All arms, the base first."""
        return [BASE, *self.own]

    def options(self, arm: str) -> Options:
        """The options of an arm alone."""
        return {} if arm == BASE else self.own[arm]


def read_arms(path: Path) -> Arms:
    """The arms of a TOML file: a table `base` and tables `arms.NAME`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError([f"--arms {path}: {error}"]) from None
    base, own = values.pop("base", {}), values.pop("arms", {})
    problems = [f"unknown table [{name}]: there are [base] and [arms.NAME]" for name in values]
    for name, options in own.items():
        if name == BASE or "/" in name or name.startswith("."):
            problems.append(f"[arms.{name}] cannot be the name of a folder beside {BASE}")
        elif not isinstance(options, dict) or any(
            isinstance(one, dict) for one in options.values()
        ):
            problems.append(f'[arms.{name}] must hold options such as "train.mask_rate" = 0.3')
    if problems:
        raise RecipeError([f"--arms {path}: {problem}" for problem in problems])
    return Arms(base, own)


def recipe_of(file: Path | None, given: Options) -> Recipe:
    """A recipe of dotted options over those of a file."""
    return absolute(load(file, given))


def text_key(recipe: Recipe) -> str:
    """What recipes that read the same text have in common."""
    values = to_dict(recipe)
    return digest([values[name] for name in OF_TEXT])[:12]
