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
from tasklm.models.task_model import LoadedModels, load_models
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.linear_part import key_of_words
from tasklm.pipeline.teacher_models import Teacher, columns_in, lessons_of, out_of_fold
from tasklm.run_folder import recipe_of
from tasklm.storage.files import ARTEFACT, read_json
from tasklm.storage.safe_reading import resolved_path
from tasklm.tasks.base import Label, Task, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.members import Member, places_of
from tasklm.tasks.readers.several import Source, named_path
from tasklm.tasks.readers.splits import read_splits
from tasklm.tasks.several import members_of, taught_width, turns_of
from tasklm.tokens.examples import EncodedExamples

Lessons = list[NDArray[np.float64]]  # of each example: (answers, outputs)


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
        own = _mean_lessons(run, task, member, models, train)
        for place, lesson in zip(places_of(train, member.name), own, strict=True):
            rows[place] = np.zeros((len(lesson), width))
            rows[place][:, member.first : member.first + lesson.shape[1]] = lesson
        for split, part in task.held_out.items():
            given = _mean_lessons(run, task, member, models, part, trained=False)
            answered = labels_from(member.task, member.own(part), given)
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
    every = []
    for teacher, loaded in models:
        wide = _wide_outputs(task, teacher, loaded, member, own, trained)
        every.append(_lessons(run, member, teacher, loaded, own, wide))
    return [np.mean(one, axis=0) for one in zip(*every, strict=True)]


def _lessons(
    run: Run,
    member: Member,
    teacher: Teacher,
    loaded: LoadedModels,
    examples: Sequence[Example],
    wide: NDArray[np.float32] | None,
) -> Lessons:
    """What a model says of some examples of a task."""
    if turns_of(loaded.task):
        loaded = alone(loaded, member.name)
    theirs, first, single = loaded.task, 0, not members_of(loaded.task)
    for one in members_of(loaded.task):
        if one.name == member.name:
            theirs, first = one.task, one.first
    columns = [first + column for column in columns_in(member.task, theirs, teacher)]
    asked_about = [
        dataclasses.replace(one, label=None, task="" if single else member.name) for one in examples
    ]
    encoded = EncodedExamples.of(loaded.task, asked_about, loaded.vocabulary, loaded.length, wide)
    lessons = lessons_of(loaded, encoded, columns, run.machine)
    of_examples: list[Lessons] = [[] for _ in examples]
    for unit, lesson in zip(encoded.units, lessons, strict=True):
        of_examples[unit.example].append(lesson)
    return [np.concatenate(parts) for parts in of_examples]


def _wide_outputs(
    task: TaskData,
    teacher: Teacher,
    loaded: LoadedModels,
    member: Member,
    examples: Sequence[Example],
    trained: bool,
) -> NDArray[np.float32] | None:
    """What a teacher's linear model says: of texts that it learnt from, out of fold."""
    if loaded.wide is None:
        return None
    outputs = None
    if trained:
        outputs = _held_out_of(teacher, task, member, examples)
    if outputs is not None:
        return outputs
    single = not members_of(loaded.task)
    asked_about = [dataclasses.replace(one, task="" if single else member.name) for one in examples]
    return loaded.wide.outputs(asked_about)


def learnt_from(teacher: Teacher, task: TaskData) -> bool:
    """Whether the linear model of a teacher's run was fitted to the same examples: by its key."""
    record = teacher.run / "wide" / ARTEFACT
    return record.is_file() and read_json(record).get("key") == key_of_words(task)


def _held_out_of(
    teacher: Teacher, task: TaskData, member: Member, examples: Sequence[Example]
) -> NDArray[np.float32] | None:
    """The outputs of linear models fitted without them for examples that a teacher learnt from.

    None where it is not known: there is an output for each word, or it learnt from others.
    """
    recipe = recipe_of(teacher.run)
    outputs = out_of_fold(teacher)
    if recipe.several.tasks:
        every = task.splits.train
        same = outputs is not None and len(outputs) == len(every) and learnt_from(teacher, task)
        return outputs[places_of(every, member.name)] if same and outputs is not None else None
    train = read_splits(recipe.data).train
    if outputs is None or len(outputs) != len(train):
        return None
    places: Mapping[Any, int] = {
        (one.texts, repr(one.label)): place for place, one in enumerate(train)
    }
    wanted = [places.get((one.texts, repr(one.label[1]))) for one in examples]
    if any(place is None for place in wanted):
        return None
    return outputs[np.array(wanted, np.int64)]


def labels_from(task: Task, examples: Sequence[Example], lessons: Lessons) -> list[Label]:
    """The labels that outputs give to a task's examples."""
    units, predictions = [], []
    for number, lesson in enumerate(lessons):
        for part in np.split(lesson, task.together):
            units.append(Unit([], list(range(len(part))), None, example=number))
            predictions.append(task.keep(part))
    answers = task.answers(examples, units, predictions)
    return [task.label_of(answer) for answer in answers]
