"""Labels of contestants → their scores, paired with the best and with tasklm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasklm.comparing.entries import OURS, Entry
from tasklm.comparing.results import Against, Latency, Result
from tasklm.comparing.training import TrainedContestant
from tasklm.errors import RunError
from tasklm.evaluate.intervals import (
    Predicted,
    Resampling,
    paired_difference,
    statistics_of,
)
from tasklm.evaluate.scores import RowInputs, make_row
from tasklm.evaluate.several_tests import holm
from tasklm.tasks.base import Floats, Task
from tasklm.tasks.examples import Splits


@dataclass(frozen=True)
class Contest:
    """What all contestants are scored on."""

    task: Task
    metric: str
    splits: Splits
    resamples: int
    confidence: float

    @property
    def split(self) -> str:
        """The split that decides."""
        return list(self.splits.named())[-1]

    def predicted(self, trained: TrainedContestant, split: str) -> Predicted | None:
        """The gold labels and those of a contestant; None for a split that is missing."""
        examples = self.splits.named().get(split)
        if not examples:
            return None
        labels = trained.labels.get(split, [])
        if len(labels) != len(examples):
            raise RunError(
                f"there are {len(labels):,} labels for the {len(examples):,} examples of {split}: "
                "the files changed meanwhile. Run the same command again."
            )
        return Predicted([example.label for example in examples], [labels])


@dataclass(frozen=True)
class Labelled:
    """A contestant with its labels, or why there are none."""

    entry: Entry
    problem: str
    trained: TrainedContestant | None
    latency: Latency | None


def scored(contest: Contest, contestants: Sequence[Labelled]) -> list[Result]:
    """A result for each contestant, in their order."""
    results = [_alone(contest, one) for one in contestants]
    statistics = {
        one.entry.title: _statistics(contest, one.trained)
        for one in contestants
        if one.trained is not None
    }
    ranked = sorted(
        (result for result in results if result.score is not None), key=lambda one: -one.mean
    )
    if not ranked:
        return results
    ours = next((one for one in ranked if one.contestant == OURS), None)
    of_best = _against(contest, ranked[0], statistics)
    of_ours: dict[str, Against] = {}
    if ours is not None:
        of_ours = _against(contest, ours, statistics)
    return [
        dataclasses.replace(one, best=of_best.get(one.title), ours=of_ours.get(one.title))
        for one in results
    ]


def _alone(contest: Contest, one: Labelled) -> Result:
    """The scores of a contestant by itself."""
    if one.trained is None:
        return Result(one.entry.title, one.entry.name, problem=one.problem)
    row = make_row(
        RowInputs(
            one.entry.title,
            "baseline",
            contest.task,
            contest.metric,
            dev=contest.predicted(one.trained, "dev"),
            test=contest.predicted(one.trained, "test"),
            resampling=Resampling(contest.resamples, contest.confidence),
        )
    )
    return Result(
        one.entry.title,
        one.entry.name,
        dev=row.dev,
        test=row.test,
        metrics=row.metrics,
        latency=one.latency,
        cost=one.trained.cost,
        setting=one.trained.setting,
        note=one.trained.note,
    )


def _statistics(contest: Contest, trained: TrainedContestant) -> Floats:
    predicted = contest.predicted(trained, contest.split)
    assert predicted is not None
    return statistics_of(contest.task.metric(contest.metric), predicted)


def _against(contest: Contest, one: Result, statistics: Mapping[str, Floats]) -> dict[str, Against]:
    """One contestant less each of the others, with p corrected for the number of others."""
    metric = contest.task.metric(contest.metric)
    resampling = Resampling(contest.resamples, contest.confidence)
    others = [title for title in statistics if title != one.title]
    differences = [
        paired_difference(metric, statistics[one.title], statistics[title], resampling)
        for title in others
    ]
    corrected = holm([difference.p for difference in differences])
    return {
        title: Against(difference, p)
        for title, difference, p in zip(others, differences, corrected, strict=True)
    }
