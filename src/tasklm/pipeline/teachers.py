"""What teachers, models of finished runs, say of the task's examples: once, without dropout, kept.

Their outputs for train teach stage 2 (BAM, arXiv 1907.04829), those for dev and test are rows of
the score table. A teacher that adds a linear model of words to its network was trained on what
linear models said of texts that they were not fitted to; the same is taken here for train.
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
from tasklm.evaluate.intervals import Predicted
from tasklm.models.task_model import (
    LoadedModels,
    answers_of,
    cost_of,
    kept_of,
    load_models,
    read_saved_model,
)
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.linear_part import key_of_words
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.run_folder import ENSEMBLE, MODEL, find_run, recipe_of
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import ARTEFACT, digest, file_digest, read_json, write_json
from tasklm.tasks.base import Label, Task
from tasklm.tasks.baselines.wide import FOLDER as WIDE
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples

NAME = "teachers"  # the artefact
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


@dataclass(frozen=True)
class Taught:
    """What teachers say of train, averaged, as logits (answers, outputs), and its key."""

    outputs: NDArray[np.float32] | None = None
    key: str = ""
    folder: Path | None = None


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


def student_of(names: Sequence[str], changes: Mapping[str, Any]) -> Recipe:
    """The recipe of the first teacher's run, for a student of all of them, with dotted changes."""
    if not names:
        raise RecipeError(["name the run that teaches: tasklm distill runs/first --out runs/small"])
    first = recipe_of(teachers_of(names)[0].run)
    student = {
        "distill.teachers": list(names),
        "evaluate.compare": [],
        "evaluate.ensemble": False,
    }
    return from_dict(with_overrides(to_dict(first), {**student, **changes}))


def taught(run: Run, task: TaskData) -> Taught:
    """What the teachers of a run say of its training examples; nothing where it has none."""
    if not run.recipe.distill.teachers:
        return Taught()
    if reason := task.task.untaught:
        raise RecipeError([f"distill.teachers: {task.task.kind} cannot be taught: {reason}"])
    teachers = teachers_of(run.recipe.distill.teachers)

    def build(folder: Path) -> None:
        outputs = []
        with run.tracker.progress("computing the teachers' answers", len(teachers)) as bar:
            for number, teacher in enumerate(teachers, 1):
                loaded = load_models(teacher.folder, run.machine.device)
                outputs.append(_outputs(run, task, teacher, loaded))
                for split, examples in task.held_out.items():
                    encoded = loaded.encoded(examples)
                    answers = answers_of(loaded.models, loaded.task, encoded, run.machine)
                    labels = [loaded.task.label_of(answer) for answer in answers]
                    write_json(folder / f"{split}-{number}.json", labels)
                bar.advance(1)
        np.save(folder / OUTPUTS, np.mean(outputs, axis=0, dtype=np.float64).astype(np.float32))

    # the record of a model has the checksums of its files
    models = [file_digest(teacher.folder / "config.json") for teacher in teachers]
    key = digest([NAME, task.key, task.metric, *models])
    folder = run.artefacts.build(NAME, key, build)
    with damage_is_clear(folder / OUTPUTS):
        return Taught(load_array(folder / OUTPUTS, np.float32, dimensions=2), key, folder)


def _outputs(
    run: Run, task: TaskData, teacher: Teacher, loaded: LoadedModels
) -> NDArray[np.float64]:
    """A teacher's outputs for train, with columns in the order of the student's labels."""
    columns = _columns(task.task, loaded.task, teacher)
    wide = None
    if loaded.wide is not None:
        wide = _out_of_fold(teacher, key_of_words(task))
        if wide is None:  # it learnt from other examples
            wide = loaded.wide.outputs(task.splits.train)
    encoded = EncodedExamples.of(
        loaded.task,
        [_unlabelled(example) for example in task.splits.train],
        loaded.vocabulary,
        loaded.length,
        wide,
    )
    lesson = loaded.task.lesson
    units = kept_of(loaded.models, loaded.task, encoded, run.machine, finite=True, keep=lesson)
    outputs: NDArray[np.float64] = np.concatenate(units).astype(np.float64)
    return outputs[:, columns]


def _unlabelled(example: Example) -> Example:
    """An example as a person asks about it: a teacher may not know its label."""
    return dataclasses.replace(example, label=None)


def _columns(student: Task, teacher: Task, named: Teacher) -> list[int]:
    """Where the teacher has the labels of the student, whose task must be the same."""
    problem = ""
    if student.kind != teacher.kind:
        problem = f"its task is of the kind {teacher.kind}, this one {student.kind}"
    elif teacher.untaught:
        problem = teacher.untaught
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


def _out_of_fold(teacher: Teacher, key: str) -> NDArray[np.float32] | None:
    """What linear models that were fitted without them say of the teacher's training examples.

    None where those are not the student's: the key of a linear model is of its examples.
    """
    record = teacher.run / "wide" / ARTEFACT
    if not record.is_file() or read_json(record).get("key") != key:
        return None
    own = sorted((teacher.folder / WIDE).iterdir())
    for name in LINEAR:
        part = teacher.run / name
        if all(_same(file, part / file.name) for file in own):
            with damage_is_clear(part / OUTPUTS):
                return load_array(part / OUTPUTS, np.float32, dimensions=2)
    return None


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and file_digest(one) == file_digest(other)


def predicted(run: Run, task: TaskData) -> list[tuple[Teacher, dict[str, Predicted]]]:
    """The labels that each teacher gives to dev and test, beside the gold ones."""
    folder = taught(run, task).folder
    if folder is None:
        return []
    pairs = []
    for number, teacher in enumerate(teachers_of(run.recipe.distill.teachers), 1):
        labels: dict[str, Any] = {}
        for split, examples in task.held_out.items():
            gold: list[Label] = [example.label for example in examples]
            given = read_json(folder / f"{split}-{number}.json")
            labels[split] = Predicted(gold, [given])
        pairs.append((teacher, labels))
    return pairs
