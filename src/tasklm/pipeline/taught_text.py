"""Selected passages, cut into pieces as long as the task's texts, as further training examples of
stage 2, labelled by the teachers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RecipeError
from tasklm.models.task_model import load_models
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.raw_text import SELECTED_TEXT, as_long_as
from tasklm.pipeline.teacher_models import (
    columns_in,
    labels_from,
    lessons_of,
    mean_lessons,
    teachers_of,
)
from tasklm.select.base import read_selection_texts
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import digest, file_digest, read_json, write_json
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of

NAME = "taught-text"  # the artefact
OUTPUTS, LABELS = "outputs.npy", "examples.json"


@dataclass(frozen=True)
class TaughtText:
    """Passages with the labels that the teachers give them, and the teachers' logits."""

    examples: Sequence[Example] = ()
    outputs: NDArray[np.float32] | None = None
    key: str = ""


NO_TEXT = TaughtText()


def taught_text(run: Run, task: TaskData, selected: Path | None) -> TaughtText:
    """The first distill.passages pieces of the selected text; nothing where the recipe asks for
    none.
    """
    count = run.recipe.distill.passages
    if not count or not run.recipe.distill.teachers:
        return NO_TEXT
    _require_text(task, selected)
    assert selected is not None
    teachers = teachers_of(run.recipe.distill.teachers)

    def build(folder: Path) -> None:
        passages = chain.from_iterable(read_selection_texts(selected))
        pieces = list(islice(as_long_as(task.splits.train, passages), count))
        examples = [task.task.example_of(text) for _, text in pieces]
        with run.tracker.progress("labelling text with the teachers", len(teachers)) as bar:
            lessons = []
            for teacher in teachers:
                loaded = load_models(teacher.folder, run.machine.device)
                columns = columns_in(task.task, loaded.task, teacher)
                encoded = loaded.encoded(examples)
                lessons.append(lessons_of(loaded, encoded, columns, run.machine))
                bar.advance(1)
        own = mean_lessons(task.task, lessons)
        labels = labels_from(task.task, examples, own)
        texts = [example.text for example in examples]
        numbers = [number for number, _ in pieces]
        write_json(folder / LABELS, {"texts": texts, "labels": labels, "passages": numbers})
        np.save(folder / OUTPUTS, np.concatenate(own).astype(np.float32))

    models = [file_digest(teacher.folder / "config.json") for teacher in teachers]
    key = digest([NAME, "numbered pieces", task.key, file_digest(selected), count, *models])
    folder = run.artefacts.build(NAME, key, build, uses=[selected.parent])
    with damage_is_clear(folder / LABELS):
        given = read_json(folder / LABELS)
        examples = [
            Example((text,), label, SELECTED_TEXT, number)
            for text, label, number in zip(
                given["texts"], given["labels"], given["passages"], strict=True
            )
        ]
    with damage_is_clear(folder / OUTPUTS):
        return TaughtText(examples, load_array(folder / OUTPUTS, np.float32, dimensions=2), key)


def _require_text(task: TaskData, selected: Path | None) -> None:
    """Raises RecipeError where passages cannot be examples of the task."""
    problem = ""
    if selected is None:
        problem = "there is no selected text; give --corpus"
    elif members_of(task.task):
        problem = "it is for one task: a passage may be of any of several"
    elif len(task.splits.train[0].texts) > 1 or task.splits.train[0].options:
        problem = "a passage is one text, but the task's examples have several"
    elif task.splits.train[0].words:
        problem = "a passage is not split into words as the task's sentences are"
    if problem:
        raise RecipeError([f"distill.passages: {problem}"])
