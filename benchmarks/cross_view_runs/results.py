"""The results of a work folder, by what they are results of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cross_view_runs.plan import SELECTED

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """All that is there."""

    results: Sequence[Result]

    def one(self, tasks: Sequence[str], share: float, way: str, **more: Any) -> Result | None:
        """A result; None where it is not there. `more`: width, selection or start."""
        usual = {"width": None, "selection": SELECTED, "start": ""}
        wanted = {"tasks": list(tasks), "share": share, "way": way, **usual, **more}
        for result in self.results:
            if all(result[name] == value for name, value in wanted.items()):
                return result
        return None

    def seeds(
        self, task: str, share: float, way: str, split: str, **more: Any
    ) -> list[float] | None:
        """The scores of all seeds of a task trained alone."""
        return of_task(self.one([task], share, way, **more), task, split)

    def values(self, name: str, **having: Any) -> list[Any]:
        """The values of a property among the results that have others, in order."""
        there = {
            result[name]
            for result in self.results
            if all(result[key] == value for key, value in having.items())
        }
        return sorted(there - {None})

    def tasks(self) -> list[str]:
        """The tasks that were trained alone."""
        alone = [result["tasks"][0] for result in self.results if len(result["tasks"]) == 1]
        return list(dict.fromkeys(alone))

    def metric(self, task: str) -> str:
        """The metric of a task."""
        scores = [result["scores"][task] for result in self.results if task in result["scores"]]
        return str(scores[0]["metric"])


def of_task(result: Result | None, task: str, split: str) -> list[float] | None:
    """The scores of all seeds on a task; None where there are none."""
    if result is None:
        return None
    scores: list[float] | None = result["scores"].get(task, {}).get(split)
    return scores
