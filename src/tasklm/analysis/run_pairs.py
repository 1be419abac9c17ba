"""Finished runs compared on the same examples, by the resampling of the score table."""

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
from tasklm.evaluate.scores import Scores, predicted_of
from tasklm.evaluate.training_data import splits_of
from tasklm.run_folder import recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.several import members_of


def difference_of(
    one: Path, other: Path, scores: tuple[Scores, Scores], name: str = ""
) -> Difference:
    """The score of a run minus that of another, whose own models have the given scores: on test, or
    on dev if neither has a test set; of a run of several tasks, on the one with a name.

    Raises RunError, with the reason, if their predictions cannot be paired.
    """
    split = "dev"
    if any(own is not None and own.test is not None for own in (scores[0].ours, scores[1].ours)):
        split = "test"
    task, ours = _on(split, one, scores[0], name)
    _, theirs = _on(split, other, scores[1], name)
    if list(ours.gold) != list(theirs.gold):
        raise RunError(f"the {split} labels of {one} and {other} differ or are in another order")
    metric, evaluate = task.metric(scores[0].metric), recipe_of(one).evaluate
    resampling = Resampling(evaluate.bootstrap, evaluate.confidence)
    return paired_difference(
        metric, statistics_of(metric, ours), statistics_of(metric, theirs), resampling
    )


def _on(split: str, run: Path, scores: Scores, name: str) -> tuple[Task, Predicted]:
    """The task of a finished run, or one of its tasks, and its seeds' predictions on a split."""
    files = [
        run / "predictions" / f"{split}-{number}.json"
        for number in range(1, scores.trainings * scores.seeds + 1)
    ]
    missing = [path for path in (run / "model" / "config.json", *files) if not path.is_file()]
    if missing:
        raise RunError(
            f"{run} lacks {missing[0].relative_to(run)}. Finish the run: tasklm report {run}"
        )
    described = read_json(run / "model" / "config.json")["task"]
    task = TASKS.get(described["kind"]).from_dict(described)
    examples = splits_of(run, task, f"train again: tasklm report {run}").named().get(split, [])
    gold = [example.label for example in examples]
    seeds = [[task.label_of(answer) for answer in read_json(path)] for path in files]
    if any(len(labels) != len(gold) for labels in seeds):
        raise RunError(
            f"{run} has predictions for a different number of {split} examples. Finish the run: "
            f"tasklm report {run}"
        )
    predicted = Predicted(gold, seeds, scores.trainings)
    member = next((one for one in members_of(task) if one.name == name), None)
    own = None if member is None else predicted_of(predicted, name)
    return (task, predicted) if member is None or own is None else (member.task, own)
