"""What is varied: the settings of each ablation, from words on the command line to keys of the
recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tasklm.errors import RunError

RANDOM, BM25, INFLUENCE = "random", "bm25", "influence"
NAMES = {RANDOM: "random", BM25: "BM25", INFLUENCE: "BM25 + influence"}
USUAL = {
    "method": (RANDOM, BM25, INFLUENCE),
    "share": ("0.1", "0.2", "0.4", "0.6", "0.8"),
    "layers": ("last", "middle", "all"),
    "batch": ("1/1", "4/1", "1/16", "4/16"),
    "steps": ("50", "200", "800", "2000"),
}
ORDERED = ("share", "steps")  # what a line may join in a chart


@dataclass(frozen=True)
class Setting:
    """One row of the table: who selects, and the keys of [select] that are its own."""

    name: str
    method: str
    keys: dict[str, Any] = field(default_factory=dict)


def settings_for(vary: str, values: list[str], layers: int) -> list[Setting]:
    """The rows of an ablation, in the order asked for; `layers` is how many
    the scoring model has.
    """
    if vary == "method":
        if unknown := [value for value in values if value not in NAMES]:
            raise RunError(f"--values: {unknown[0]!r} is not known; choose from {', '.join(NAMES)}")
        return [Setting(NAMES[value], value) for value in dict.fromkeys(values)]
    readers: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
        "share": _share,
        "layers": lambda text: _layers(text, layers),
        "batch": _batch,
        "steps": _steps,
    }
    try:
        found = dict(readers[vary](value) for value in values)
    except ValueError:
        raise RunError(
            f"--values {','.join(values)}: "
            f"for --vary {vary} they are such as {','.join(USUAL[vary])}"
        ) from None
    return [Setting(name, INFLUENCE, keys) for name, keys in found.items()]


def _share(text: str) -> tuple[str, dict[str, Any]]:
    share = float(text)
    return f"{100 * share:g} %", {"influence_share": share}


def _layers(text: str, layers: int) -> tuple[str, dict[str, Any]]:
    """The layers of a word; several numbers are joined by +, as commas part the words."""
    if text == "middle":
        return f"middle ({(layers + 1) // 2} of {layers})", {
            "influence_layers": str((layers + 1) // 2)
        }
    numbers = (
        text if text in ("last", "all") else ",".join(str(int(part)) for part in text.split("+"))
    )
    return text, {"influence_layers": numbers}


def _batch(text: str) -> tuple[str, dict[str, Any]]:
    passages, examples = (int(part) for part in text.split("/"))
    return text, {"influence_batch": passages, "influence_task_batch": examples}


def _steps(text: str) -> tuple[str, dict[str, Any]]:
    return f"{int(text):,}", {"influence_steps": int(text)}
