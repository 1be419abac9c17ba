"""Teachers: models of finished runs, and what they and their linear models say of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.models.saved_model import read_saved_model
from tasklm.models.task_model import LoadedModels, cost_of, kept_of
from tasklm.run_folder import ENSEMBLE, MODEL, find_run
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import file_digest
from tasklm.tasks.base import Label, Task, Unit
from tasklm.tasks.baselines.wide import FOLDER as WIDE
from tasklm.tasks.examples import Example
from tasklm.tasks.text_lessons import text_lessons_of
from tasklm.tokens.examples import EncodedExamples

Lessons = list[NDArray[np.float64]]  # of each example: (answers, outputs)
LINEAR = ("wide-text", "wide")  # artefacts of linear models, in the run of a teacher
OUTPUTS = "train.npy"


@dataclass(frozen=True)
class Teacher:
    """A trained model and the run that it is of."""

    run: Path
    folder: Path  # of its model, or of the ensemble

    @property
    def title(self) -> str:
        """Its name in the score table."""
        seeds = ", all seeds together" if self.folder.name == ENSEMBLE else ""
        return f"teacher {self.run.name}{seeds}"

    @property
    def parameters(self) -> int:
        """The weights of its encoders."""
        saved = read_saved_model(self.folder)
        return len(saved.weights) * cost_of(saved.encoder, saved.shape).parameters


def teachers_of(names: Sequence[str]) -> list[Teacher]:
    """The teachers that run folders name, or folders of models in them."""
    return [_teacher(Path(name)) for name in names]


def _teacher(path: Path) -> Teacher:
    run = find_run(path)
    if run is None:
        problem = f"{path} is neither a run nor the folder of a run's model"
        raise RecipeError([f"distill.teachers: {problem}; name a folder that `tasklm fit` made"])
    choices = [path]
    if path == run:
        choices = [run / ENSEMBLE, run / MODEL]
    for folder in choices:
        if (folder / "config.json").is_file():
            return Teacher(run, folder)
    raise RecipeError(
        [f"distill.teachers: {path} has no model yet; finish it with: tasklm evaluate {run}"]
    )


def columns_in(student: Task, teacher: Task, named: Teacher) -> list[int]:
    """Where the teacher has the labels of the student, whose task must be the same."""
    problem = ""
    if student.kind != teacher.kind:
        problem = f"its task is of the kind {teacher.kind}, this one {student.kind}"
    elif student.together != teacher.together:
        problem = f"it knows {teacher.together} options, this task has {student.together}"
    elif strange := sorted(set(student.labels) ^ set(teacher.labels)):
        problem = f"labels differ: {', '.join(map(repr, strange[:5]))}"
    elif _range(student) != _range(teacher):
        problem = f"its scores go from {_range(teacher)}, these from {_range(student)}"
    if problem:
        raise RecipeError([f"distill.teachers: {named.run} cannot teach this task: {problem}"])
    if not student.labels:
        return [0]
    return [teacher.labels.index(label) for label in student.labels]


def _range(task: Task) -> str:
    """The scores that a regression can give, in words; nothing for other kinds."""
    values = task.to_dict()
    return f"{values['low']:g} to {values['high']:g}" if "low" in values else ""


def lessons_of(
    loaded: LoadedModels, encoded: EncodedExamples, columns: Sequence[int], machine: Machine
) -> Lessons:
    """What a teacher says of each example, (answers, outputs): these columns of its logits.

    Of answers that are places in a text, what it says of words; the models of an ensemble are then
    asked one by one, for their answers have nothing else in common.
    """
    task, in_words = loaded.task, text_lessons_of(loaded.task)
    if in_words is None:
        of_units = kept_of(loaded.models, task, encoded, machine, finite=True, keep=task.lesson)
        parts = [np.asarray(one, np.float64)[:, list(columns)] for one in of_units]
        return [np.concatenate(own) for own in _by_example(encoded, parts)]
    every = []
    units = _by_example(encoded, encoded.units)
    for model in loaded.models:
        of_units = kept_of([model], task, encoded, machine, finite=True, keep=task.lesson)
        every.append(
            [
                in_words.text_lesson(example, own, answers, columns)
                for example, own, answers in zip(
                    encoded.examples, units, _by_example(encoded, of_units), strict=True
                )
            ]
        )
    return mean_lessons(task, every)


def _by_example(encoded: EncodedExamples, of_units: Sequence[Any]) -> list[list[Any]]:
    """What there is for each unit, by the examples that they are of."""
    of_examples: list[list[Any]] = [[] for _ in encoded.examples]
    for unit, one in zip(encoded.units, of_units, strict=True):
        of_examples[unit.example].append(one)
    return of_examples


def mean_lessons(task: Task, every: Sequence[Lessons]) -> Lessons:
    """The mean of what several teachers say of each example."""
    in_words = text_lessons_of(task)
    if in_words is None:
        return [np.mean(one, axis=0) for one in zip(*every, strict=True)]
    return [in_words.mean_lesson(one) for one in zip(*every, strict=True)]


def lesson_rows(task: Task, examples: Sequence[Example], lessons: Lessons) -> Lessons:
    """Lessons as rows of so many numbers as the task has."""
    in_words = text_lessons_of(task)
    if in_words is None:
        return lessons
    both = zip(examples, lessons, strict=True)
    return [in_words.lesson_rows(example, lesson) for example, lesson in both]


def labels_from(task: Task, examples: Sequence[Example], lessons: Lessons) -> list[Label]:
    """The labels that lessons give to a task's examples."""
    if in_words := text_lessons_of(task):
        both = zip(examples, lessons, strict=True)
        return [in_words.lesson_label(example, lesson) for example, lesson in both]
    units, predictions = [], []
    for number, lesson in enumerate(lessons):
        for part in np.split(lesson, task.together):
            units.append(Unit([], list(range(len(part))), None, example=number))
            predictions.append(task.keep(part))
    answers = task.answers(examples, units, predictions)
    return [task.label_of(answer) for answer in answers]


def out_of_fold(teacher: Teacher) -> NDArray[np.float32] | None:
    """What linear models that were fitted without them say of the teacher's training examples.

    None if the linear model of the teacher is not that of its run.
    """
    own = sorted(path for path in (teacher.folder / WIDE).rglob("*") if path.is_file())
    for name in LINEAR:
        part = teacher.run / name
        if all(_same(file, part / file.relative_to(teacher.folder / WIDE)) for file in own):
            with damage_is_clear(part / OUTPUTS):
                return load_array(part / OUTPUTS, np.float32, dimensions=2)
    return None


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and file_digest(one) == file_digest(other)
