"""Finished runs compared on the same test examples, by the resampling of the score table."""

from __future__ import annotations

from pathlib import Path

from tasklm.errors import RunError
from tasklm.evaluate.intervals import (
    Difference,
    Predicted,
    Resampling,
    paired_difference,
    statistics_of,
)
from tasklm.evaluate.scores import Scores
from tasklm.evaluate.training_data import splits_of
from tasklm.run_folder import recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, Task


def difference_of(one: Path, other: Path, scores: tuple[Scores, Scores]) -> Difference:
    """The test score of a run minus that of another, whose own models have the given scores.

    Raises RunError, with the reason, if their predictions on test cannot be paired.
    """
    task, ours = _on_test(one, scores[0])
    _, theirs = _on_test(other, scores[1])
    if list(ours.gold) != list(theirs.gold):
        raise RunError(f"the test labels of {one} and {other} differ or are in another order")
    metric, evaluate = task.metric(scores[0].metric), recipe_of(one).evaluate
    resampling = Resampling(evaluate.bootstrap, evaluate.confidence)
    return paired_difference(
        metric, statistics_of(metric, ours), statistics_of(metric, theirs), resampling
    )


def _on_test(run: Path, scores: Scores) -> tuple[Task, Predicted]:
    """The task of a finished run, and its seeds' predictions on test."""
    files = [
        run / "predictions" / f"test-{number}.json"
        for number in range(1, scores.trainings * scores.seeds + 1)
    ]
    missing = [path for path in (run / "model" / "config.json", *files) if not path.is_file()]
    if missing:
        raise RunError(
            f"{run} lacks {missing[0].relative_to(run)}. Finish the run: tasklm report {run}"
        )
    described = read_json(run / "model" / "config.json")["task"]
    task = TASKS.get(described["kind"]).from_dict(described)
    gold = [
        example.label for example in splits_of(run, task, f"train again: tasklm report {run}").test
    ]
    seeds = [[task.label_of(answer) for answer in read_json(path)] for path in files]
    if any(len(labels) != len(gold) for labels in seeds):
        raise RunError(
            f"{run} has predictions for a different number of test examples. Finish the run: "
            f"tasklm report {run}"
        )
    return task, Predicted(gold, seeds, scores.trainings)
