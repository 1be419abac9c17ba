"""What an answer wavers between: two answers and how likely they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.readers.sheets import SheetColumns

# two answers and their probabilities, the likelier first
Rivals = tuple[tuple[str, float], tuple[str, float]]


class Unranked:
    """A kind of task whose answers do not say how sure they are, and why."""

    kind: ClassVar[str]
    unranked: ClassVar[str]

    def rivals(self, answer: Mapping[str, Any]) -> Rivals:
        """There are none: see `unranked`."""
        raise self._refusal()

    @classmethod
    def sheet(cls, path: Path, data: Data) -> SheetColumns:
        """There is none: see `unranked`."""
        raise cls._refusal()

    @classmethod
    def _refusal(cls) -> RecipeError:
        problem = f"texts cannot be ranked for tasks of kind {cls.kind}: {cls.unranked}"
        return RecipeError([f"{problem}. Label texts drawn at random, such as with shuf -n 100"])


def likeliest(probabilities: Mapping[str, float]) -> Rivals:
    """The two likeliest of some answers; in a tie the first ones."""
    first, second = sorted(probabilities.items(), key=lambda one: -one[1])[:2]
    return first, second


def nearest_threshold(probabilities: Mapping[str, float], thresholds: Sequence[float]) -> Rivals:
    """Whether that label applies whose probability is nearest its threshold.

    Probabilities are bent so that each threshold is one half.
    """
    named = zip(probabilities.items(), thresholds, strict=True)
    bent = {label: _bent(value, least) for (label, value), least in named}
    label = min(bent, key=lambda name: abs(bent[name] - 0.5))
    return likeliest({label: bent[label], f"not {label}": 1 - bent[label]})


def _bent(value: float, least: float) -> float:
    if value >= least:
        return 0.5 + 0.5 * (value - least) / max(1 - least, 1e-9)
    return 0.5 * value / least
