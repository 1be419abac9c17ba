"""A model for each of several tasks, trained by itself: what they are compared with together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Costs, Row, make_row
from tasklm.pipeline import evaluation
from tasklm.pipeline.context import CorpusData, Run, TaskData, Trained
from tasklm.pipeline.opening import open_run
from tasklm.storage.files import digest
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Splits
from tasklm.tasks.several import Member, members_of, places_of

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
        run, own = _run_of(member, task, comparison), _task_of(member, task)
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


def _run_of(member: Member, task: TaskData, comparison: Run) -> Run:
    """The run of a task by itself, whose fine-tuning is planned for its own examples."""
    source = next(one for one in task.sources if one.name == member.name)
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
        finetune={"epochs": None},
        distill={"teachers": []},
    )
    tracker = comparison.tracker.inside(member.name)
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
