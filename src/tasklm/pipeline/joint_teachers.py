"""What teachers say of several tasks: each task is taught by the models that were trained on it.

A teacher is the model of one of the tasks (single to multi), or one of several tasks by the same
names (multi to multi). Outputs of several teachers of a task are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RecipeError
from tasklm.models.one_task import alone
from tasklm.models.task_model import LoadedModels, answers_of, load_models
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.linear_part import key_of_words
from tasklm.pipeline.teacher_models import (
    Lessons,
    Teacher,
    columns_in,
    labels_from,
    lesson_rows,
    lessons_of,
    mean_lessons,
    out_of_fold,
)
from tasklm.run_folder import recipe_of
from tasklm.storage.files import ARTEFACT, read_json
from tasklm.storage.safe_reading import resolved_path
from tasklm.tasks.base import Label
from tasklm.tasks.baselines.wide_parts import AnyWide, WideParts
from tasklm.tasks.examples import Example
from tasklm.tasks.members import Member, places_of
from tasklm.tasks.readers.several import Source, named_path
from tasklm.tasks.readers.splits import read_splits
from tasklm.tasks.several import members_of, taught_width
from tasklm.tokens.examples import EncodedExamples


@dataclass(frozen=True)
class Pupil:
    """A task of several, and those who teach it."""

    member: Member
    teachers: Sequence[Teacher]


def pupils_of(task: TaskData, teachers: Sequence[Teacher]) -> list[Pupil]:
    """The teachers of each task; raises RecipeError for a task without one."""
    pupils = []
    for member in members_of(task.task):
        source = next(one for one in task.sources if one.name == member.name)
        own = [teacher for teacher in teachers if _teaches(teacher, source)]
        if not own:
            problem = f"none was trained on {source.data.train}, the task {member.name!r}"
            raise RecipeError([f"distill.teachers: {problem}; add its run, or leave the task out"])
        pupils.append(Pupil(member, own))
    idle = [one for one in teachers if not any(one in pupil.teachers for pupil in pupils)]
    if idle:
        raise RecipeError([f"distill.teachers: {idle[0].run} was trained on none of the tasks"])
    return pupils


def _teaches(teacher: Teacher, source: Source) -> bool:
    """Whether a model was trained on a task: by its name in a run of several, else by its file."""
    recipe = recipe_of(teacher.run)
    if recipe.several.tasks:
        return source.name in {named_path(entry)[0] for entry in recipe.several.tasks}
    theirs, own = Path(recipe.data.train), Path(source.data.train)
    return resolved_path(theirs) == resolved_path(own)


def joint_lessons(
    run: Run, task: TaskData, pupils: Sequence[Pupil]
) -> tuple[NDArray[np.float32], dict[str, list[Label]]]:
    """What the teachers say of train, (answers, outputs), and the labels that they give to dev and
    test.
    """
    width = taught_width(task.task)
    train = task.splits.train
    rows: Lessons = [np.zeros((1, width)) for _ in train]
    labels: dict[str, list[Label]] = {
        split: [None] * len(part) for split, part in task.held_out.items()
    }
    for pupil in pupils:
        models = [(one, load_models(one.folder, run.machine.device)) for one in pupil.teachers]
        member = pupil.member
        means = _mean_lessons(run, task, member, models, train)
        own = lesson_rows(member.task, member.own(train), means)
        for place, lesson in zip(places_of(train, member.name), own, strict=True):
            rows[place] = np.zeros((len(lesson), width))
            rows[place][:, member.first : member.first + lesson.shape[1]] = lesson
        for split, part in task.held_out.items():
            answered = _labels(run, task, member, models, part)
            for place, label in zip(places_of(part, member.name), answered, strict=True):
                labels[split][place] = (member.name, label)
    return np.concatenate(rows).astype(np.float32), labels


def _mean_lessons(
    run: Run,
    task: TaskData,
    member: Member,
    models: Sequence[tuple[Teacher, LoadedModels]],
    examples: Sequence[Example],
    trained: bool = True,
) -> Lessons:
    """The mean of what models say of a task's examples, in the order of the student's labels."""
    own = [one for one in examples if one.task == member.name]
    if not own:
        return []
    asked_about = [dataclasses.replace(one, label=None, task="") for one in own]
    every = []
    for teacher, loaded in models:
        wide = None
        if trained:
            wide = _held_out_of(teacher, loaded.wide, task, own)
        if members_of(loaded.task):
            loaded = alone(loaded, member.name)
        if wide is None and loaded.wide is not None:
            wide = loaded.wide.outputs(asked_about)
        columns = columns_in(member.task, loaded.task, teacher)
        encoded = EncodedExamples.of(
            loaded.task, asked_about, loaded.vocabulary, loaded.length, wide
        )
        every.append(lessons_of(loaded, encoded, columns, run.machine))
    return mean_lessons(member.task, every)


def _labels(
    run: Run,
    task: TaskData,
    member: Member,
    models: Sequence[tuple[Teacher, LoadedModels]],
    examples: Sequence[Example],
) -> list[Label]:
    """The labels that a task's teacher gives, with its own thresholds; those of the mean of several
    teachers.
    """
    if len(models) > 1:
        given = _mean_lessons(run, task, member, models, examples, trained=False)
        return labels_from(member.task, member.own(examples), given)
    loaded = models[0][1]
    if members_of(loaded.task):
        loaded = alone(loaded, member.name)
    asked_about = [dataclasses.replace(one, label=None) for one in member.own(examples)]
    if not asked_about:
        return []
    answers = answers_of(loaded.models, loaded.task, loaded.encoded(asked_about), run.machine)
    return [loaded.task.label_of(answer) for answer in answers]


def learnt_from(teacher: Teacher, task: TaskData) -> bool:
    """Whether the linear model of a teacher's run was fitted to the same examples: by its key."""
    record = teacher.run / "wide" / ARTEFACT
    return record.is_file() and read_json(record).get("key") == key_of_words(task)


def _held_out_of(
    teacher: Teacher, wide: AnyWide | None, task: TaskData, examples: Sequence[Example]
) -> NDArray[np.float32] | None:
    """The outputs of linear models fitted without them for examples of a task that a teacher learnt
    from; None where it has no linear part of the task, or learnt from others.
    """
    name = examples[0].task
    outputs = None if wide is None else out_of_fold(teacher)
    if wide is None or outputs is None:
        return None
    if isinstance(wide, WideParts):
        if wide.parts.get(name) is None or not learnt_from(teacher, task):
            return None
        sharing = [one for one in task.splits.train if one.task in wide.columns]
        first, count = wide.columns[name]
        rows = wide.rows_of(sharing, outputs[:, first : first + count])
        return np.concatenate([rows[place] for place in places_of(sharing, name)])
    train = read_splits(recipe_of(teacher.run).data).train
    places: Mapping[Any, int] = {
        (one.texts, repr(one.label)): place for place, one in enumerate(train)
    }
    wanted = [places.get((one.texts, repr(one.label[1]))) for one in examples]
    if any(place is None for place in wanted):
        return None
    rows = wide.rows_of(train, outputs)
    return np.concatenate([rows[place] for place in wanted if place is not None])
