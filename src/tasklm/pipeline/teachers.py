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
from tasklm.evaluate.verdict import JOINT_TEACHERS
from tasklm.models.task_model import (
    LoadedModels,
    answers_of,
    load_models,
)
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.joint_teachers import joint_lessons, learnt_from, pupils_of
from tasklm.pipeline.teacher_models import (
    OUTPUTS,
    Lessons,
    Teacher,
    columns_in,
    lesson_rows,
    lessons_of,
    mean_lessons,
    out_of_fold,
    teachers_of,
)
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.run_folder import RECIPE, recipe_of
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import digest, file_digest, read_json, write_json
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of
from tasklm.tokens.examples import EncodedExamples

NAME = "teachers"  # the artefact


@dataclass(frozen=True)
class Taught:
    """What teachers say of train, averaged, as logits (answers, outputs), and its key."""

    outputs: NDArray[np.float32] | None = None
    key: str = ""
    folder: Path | None = None


def student_of(names: Sequence[str], changes: Mapping[str, Any]) -> Recipe:
    """The recipe of the first teacher's run, for a student of all of them, with dotted changes.

    Teachers of different tasks make a student of all these tasks.
    """
    if not names:
        raise RecipeError(["name the run that teaches: tasklm distill runs/first --out runs/small"])
    runs = list(dict.fromkeys(teacher.run for teacher in teachers_of(names)))
    first = recipe_of(runs[0])
    tasks = {recipe_of(run).data.train: run for run in reversed(runs)}
    student: dict[str, Any] = {
        "distill.teachers": list(names),
        "evaluate.compare": [],
        "evaluate.ensemble": False,
    }
    if changes.get("train.start"):
        student["tokens.vocabulary"] = None  # the start brings its own
    if len(tasks) > 1 and not first.several.tasks:
        given = [run for run in runs if run in tasks.values()]
        student["several.tasks"] = [f"{run.name}={run / RECIPE}" for run in given]
        student["evaluate.metric"] = "auto"  # each task has that of its own recipe
        for name in ("train", "dev", "test", "text_column", "label_column", "options_column"):
            student[f"data.{name}"] = ""
        student["data.kind"] = "auto"
    return from_dict(with_overrides(to_dict(first), {**student, **changes}))


def taught(run: Run, task: TaskData) -> Taught:
    """What the teachers of a run say of its training examples; nothing where it has none."""
    if not run.recipe.distill.teachers:
        return Taught()
    teachers = teachers_of(run.recipe.distill.teachers)

    def build(folder: Path) -> None:
        if members_of(task.task):
            build_joint(folder)
        else:
            build_each(folder)

    def build_joint(folder: Path) -> None:
        with run.tracker.progress("computing the teachers' answers"):
            outputs, labels = joint_lessons(run, task, pupils_of(task, teachers))
        for split, given in labels.items():
            write_json(folder / f"{split}-1.json", given)
        np.save(folder / OUTPUTS, outputs)

    def build_each(folder: Path) -> None:
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
        train = task.splits.train
        rows = lesson_rows(task.task, train, mean_lessons(task.task, outputs))
        np.save(folder / OUTPUTS, np.concatenate(rows).astype(np.float32))

    # the record of a model has the checksums of its files
    models = [file_digest(teacher.folder / "config.json") for teacher in teachers]
    key = digest([NAME, task.key, task.metric, *models])
    folder = run.artefacts.build(NAME, key, build)
    with damage_is_clear(folder / OUTPUTS):
        return Taught(load_array(folder / OUTPUTS, np.float32, dimensions=2), key, folder)


def _outputs(run: Run, task: TaskData, teacher: Teacher, loaded: LoadedModels) -> Lessons:
    """What a teacher says of train, with columns in the order of the student's labels."""
    columns = columns_in(task.task, loaded.task, teacher)
    wide = None
    if loaded.wide is not None:
        if learnt_from(teacher, task):
            wide = out_of_fold(teacher)
        if wide is None:  # it learnt from other examples
            wide = loaded.wide.outputs(task.splits.train)
    encoded = EncodedExamples.of(
        loaded.task,
        [_unlabelled(example) for example in task.splits.train],
        loaded.vocabulary,
        loaded.length,
        wide,
    )
    return lessons_of(loaded, encoded, columns, run.machine)


def _unlabelled(example: Example) -> Example:
    """An example as a person asks about it: a teacher may not know its label."""
    return dataclasses.replace(example, label=None)


@dataclass(frozen=True)
class Graded:
    """A teacher, or all teachers of several tasks, and the labels given to dev and test."""

    title: str
    parameters: int
    labels: dict[str, Predicted]


def predicted(run: Run, task: TaskData) -> list[Graded]:
    """The labels that each teacher gives to dev and test, beside the gold ones."""
    folder = taught(run, task).folder
    if folder is None:
        return []
    teachers = teachers_of(run.recipe.distill.teachers)
    graders = [(teacher.title, teacher.parameters) for teacher in teachers]
    if members_of(task.task):
        graders = [(JOINT_TEACHERS, sum(parameters for _, parameters in graders))]
    graded = []
    for number, (title, parameters) in enumerate(graders, 1):
        labels: dict[str, Any] = {}
        for split, examples in task.held_out.items():
            gold: list[Label] = [example.label for example in examples]
            given = read_json(folder / f"{split}-{number}.json")
            labels[split] = Predicted(gold, [given])
        graded.append(Graded(title, parameters, labels))
    return graded
