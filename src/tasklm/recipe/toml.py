"""Recipes as TOML files: reading them, with all problems reported at once, and writing them with a
comment per key.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.parsing import named_value
from tasklm.recipe.schema import Recipe, from_dict, section_types, with_overrides
from tasklm.storage.files import digest
from tasklm.storage.safe_reading import is_there, read_text, resolved_path

MOST_BYTES = 16 << 20  # of a recipe
PATH_KEYS = {
    "data": ("train", "dev", "test", "unlabelled"),
    "tokens": ("file",),
    "train": ("start",),
}
PATH_LISTS = ("more", "more_dev", "more_test")  # keys of [data] with several paths


def load(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a TOML file (or the defaults), with dotted overrides applied.

    Relative paths in the file are relative to the file, so that a recipe works from any folder.
    """
    values = _read_toml(path) if path is not None else {}
    if path is not None:
        _anchor(values, path.parent)
    return from_dict(with_overrides(values, overrides or {}))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, MOST_BYTES))
    except FileNotFoundError:
        raise DataError(
            "no such recipe",
            file=path,
            remedy="Write one with 'tasklm init TRAIN --corpus …'.",
        ) from None
    except OSError as error:
        raise DataError(
            f"the recipe cannot be read ({error.strerror})",
            file=path,
            remedy="Give the path of a TOML file.",
        ) from None
    except RecursionError:
        raise RecipeError([f"{path} is not valid TOML: lists are nested too deeply"]) from None
    except ValueError as error:  # also for a number with very many digits
        raise RecipeError([f"{path} is not valid TOML: {error}"]) from None


def _anchor(values: dict[str, Any], folder: Path) -> None:
    """Resolves paths relative to the recipe's folder; `train.start` may also be a hub name, if no
    such folder exists.
    """
    for section, keys in PATH_KEYS.items():
        part = values.get(section)
        if isinstance(part, dict):
            given = {
                name: part[name] for name in keys if isinstance(part.get(name), str) and part[name]
            }
            part.update(
                {
                    name: str(folder / value)
                    for name, value in given.items()
                    if name != "start" or is_there(folder / value)
                }
            )
    data = values.get("data")
    for name in PATH_LISTS:
        if isinstance(data, dict) and isinstance(data.get(name), list):
            data[name] = [str(folder / one) if isinstance(one, str) else one for one in data[name]]
    if isinstance(data, dict) and isinstance(data.get("corpus"), list):
        data["corpus"] = [
            str(folder / item) if isinstance(item, str) and "://" not in item else item
            for item in data["corpus"]
        ]
    if isinstance(data, dict) and isinstance(data.get("without"), list):
        data["without"] = [_existing(item, folder) for item in data["without"]]
    several = values.get("several")
    if isinstance(several, dict) and isinstance(several.get("tasks"), list):
        several["tasks"] = [
            with_path(item, lambda path: folder / path) if isinstance(item, str) else item
            for item in several["tasks"]
        ]
    distill = values.get("distill")
    if isinstance(distill, dict) and isinstance(distill.get("teachers"), list):
        distill["teachers"] = [
            str(folder / item) if isinstance(item, str) else item for item in distill["teachers"]
        ]


def _existing(pattern: Any, folder: Path) -> Any:
    """A pattern of sources; the path of a file or folder that exists below another one."""
    if isinstance(pattern, str) and pattern and is_there(folder / pattern):
        return str(folder / pattern)
    return pattern


def with_path(entry: str, change: Callable[[Path], Path]) -> str:
    """NAME=PATH or PATH with the path changed."""
    name, path = named_value(entry)
    return f"{name}={change(Path(path))}" if name else str(change(Path(path)))


def absolute(recipe: Recipe) -> Recipe:
    """The recipe with absolute paths, so that it works from any folder."""

    def resolved(section: str, name: str) -> str:
        value = getattr(getattr(recipe, section), name)
        return str(resolved_path(Path(value))) if value else ""

    paths: dict[str, dict[str, Any]] = {
        section: {n: resolved(section, n) for n in names} for section, names in PATH_KEYS.items()
    }
    paths["data"]["corpus"] = [
        item if "://" in item else str(resolved_path(Path(item))) for item in recipe.data.corpus
    ]
    for name in PATH_LISTS:
        paths["data"][name] = [str(resolved_path(Path(one))) for one in getattr(recipe.data, name)]
    paths["data"]["without"] = [
        str(resolved_path(Path(item))) if is_there(Path(item)) else item
        for item in recipe.data.without
    ]
    paths["several"] = {"tasks": [with_path(item, resolved_path) for item in recipe.several.tasks]}
    paths["distill"] = {
        "teachers": [str(resolved_path(Path(item))) for item in recipe.distill.teachers]
    }
    return recipe.changed(**paths)


def without_password(recipe: Recipe) -> Recipe:
    """The recipe without secrets: the server's address loses its user and password."""
    return recipe.changed(select={"url": without_login(recipe.select.url)})


def without_login(address: str) -> str:
    """An address without its user and password; a password may contain an @."""
    return re.sub(r"//[^/]*@", "//", address)


def recipe_key(path: Path) -> str:
    """A hash of the recipe's settings, independent of the machine."""
    values = _read_toml(path)
    return digest({section: keys for section, keys in values.items() if section != "hardware"})


def cache_folder(recipe: Recipe, run: Path) -> Path:
    """The folder that runs on the same corpus share."""
    return Path(recipe.hardware.cache) if recipe.hardware.cache else run.parent / ".cache"


def dump(recipe: Recipe, *, comments: bool = False, notes: Mapping[str, str] | None = None) -> str:
    """The recipe as TOML; with `comments`, every key carries its help text, and `notes` tell what
    was detected.

    A key that is auto is written commented out, because TOML has no null.
    """
    notes = notes or {}
    lines: list[str] = []
    for name, cls in section_types().items():
        lines.append(f"[{name}]")
        section = getattr(recipe, name)
        for entry in dataclasses.fields(cls):
            value = getattr(section, entry.name)
            if comments:
                lines.append(f"# {entry.metadata['help']}{_choices(entry)}")
            if note := notes.get(f"{name}.{entry.name}"):
                lines.append(f"# found: {note}")
            if value is not None:
                lines.append(f"{entry.name} = {_toml(value)}")
            elif comments:
                lines.append(f"# {entry.name} = auto")
        lines.append("")
    return "\n".join(lines)


def _choices(entry: dataclasses.Field[Any]) -> str:
    choices = entry.metadata["choices"]
    return f" [{' | '.join(choices)}]" if choices else ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    escaped = "".join(_escape(character) for character in value)
    return f'"{escaped}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return f"\\u{ord(character):04x}" if ord(character) < 32 or ord(character) == 127 else character
