"""A model for each of several tasks, trained by itself: what they are compared with together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tasklm.budget.rules import epochs_for, stage2_batch
from tasklm.encoders.shapes import SHALLOW
from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Costs, Row, make_row
from tasklm.pipeline import evaluation
from tasklm.pipeline.context import CorpusData, Run, TaskData, Trained
from tasklm.pipeline.opening import open_run
from tasklm.storage.files import digest
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Splits
from tasklm.tasks.members import Member, places_of
from tasklm.tasks.several import members_of
from tasklm.train.stages import usual_epochs

# keys of [data] that are not of a single task
OF_ALL_TASKS = (
    "corpus",
    "corpus_column",
    "passage_words",
    "contamination_words",
    "unlabelled",
    "share",
)
SINGLE = "single"  # the name of the comparison
Train = Callable[[Run, TaskData, CorpusData | None, str], Trained | None]


def single_row(
    ours: Trained, comparison: Run, title: str, ours_test: Predicted | None, train: Train
) -> Row:
    """The row of the tasks' own models, each with as many steps of stage 1 as ours."""
    task = ours.task
    seeds = len(ours.seeds)
    labels: dict[str, list[list[Label]]] = {
        split: [[None] * len(part) for _ in range(seeds)] for split, part in task.held_out.items()
    }
    rows = []
    for member in members_of(task.task):
        own = _task_of(member, task)
        run = _run_of(member, ours, comparison, _epochs(ours, own, comparison))
        trained = train(run, own, ours.corpus, "evaluate")
        assert trained is not None
        rows.append(evaluation.model_row(trained, member.name, "ablation"))
        for split in own.held_out:
            predicted = evaluation.labels_of(own, trained.predictions, split)
            places = places_of(task.splits.named()[split], member.name)
            for seed, given in enumerate(predicted.seeds):
                for place, label in zip(places, given, strict=True):
                    labels[split][seed][place] = (member.name, label)
    splits = {
        split: Predicted([one.label for one in part], labels[split], ours.trainings)
        for split, part in task.held_out.items()
    }
    inputs = evaluation.given_labels(ours.run, task, splits, ours_test)
    row = dataclasses.replace(inputs, name=title, kind="ablation", costs=_costs(rows))
    return make_row(row)


def _epochs(ours: Trained, own: TaskData, comparison: Run) -> int | None:
    """The epochs of a task's own fine-tuning: as given, or None for the usual number.

    Where minutes left ours fewer than usual, they leave the same share of its own.
    """
    given, trained = ours.run.recipe.finetune, comparison.recipe.finetune.epochs
    if given.epochs is not None:
        return given.epochs
    examples, usual = len(own.splits.train), usual_epochs(given, ours.parts)
    if trained is None or trained >= usual:
        return None
    batch = (given.batch or 0) // own.task.together
    batch = batch or stage2_batch(examples, ours.parts.shape.layers <= SHALLOW)
    return max(1, round(epochs_for(examples, batch) * trained / usual))


def _run_of(member: Member, ours: Trained, comparison: Run, epochs: int | None) -> Run:
    """The run of a task by itself; progress shows which of the tasks it is."""
    task = ours.task
    place = next(number for number, one in enumerate(task.sources, 1) if one.name == member.name)
    source = task.sources[place - 1]
    data = {
        name: value
        for name, value in dataclasses.asdict(source.data).items()
        if name not in OF_ALL_TASKS
    }
    recipe = comparison.recipe.changed(
        several={"tasks": []},
        data=data,
        kind=dataclasses.asdict(source.recipe.kind),
        evaluate={"metric": member.metric},
        finetune={"epochs": epochs, "unlabelled_tasks": "all"},
        distill={"teachers": []},
    )
    tracker = comparison.tracker.inside(f"{member.name}, {place} of {len(task.sources)}")
    return open_run(recipe, comparison.folder / member.name, tracker, comparison.cache)


def _task_of(member: Member, task: TaskData) -> TaskData:
    """The examples of one task, those that leaked from other tasks left out as in ours."""
    splits = task.splits
    own = Splits(member.own(splits.train), member.own(splits.dev), member.own(splits.test))
    key = digest([task.key, member.name])
    hidden = member.own(task.hidden)
    return TaskData(member.task, own, [], key, member.metric, hidden=hidden)


def _costs(rows: list[Row]) -> Costs:
    """What all of the models cost together."""
    sums: dict[str, Any] = {
        entry.name: sum(getattr(row, entry.name) for row in rows)
        for entry in dataclasses.fields(Costs)
    }
    return Costs(**sums)
