"""Tasks, models and batches of text without labels for the tests of students."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import RECURRENT_LAYERS
from tasklm.models.task_model import TaskModel, new_encoder
from tasklm.recipe.model_sections import Finetune
from tasklm.students.base import STUDENTS, Classroom, Student, with_lasts
from tasklm.tasks.base import Task
from tasklm.tasks.classify import Classify
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.parse import Parse
from tasklm.tasks.tag import Tag
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.encoders.samples import stir

LENGTH = 32
NAMES = ("cross-view", "word-dropout", "vat")
TASKS: dict[str, Task] = {
    "tag": Tag(["a", "b", "c"], "plain"),
    "crf": Tag(["a", "b", "c"], "plain", crf=True),
    "classify": Classify(["a", "b", "c"]),
    "multilabel": Multilabel(["a", "b", "c"]),
    "parse": Parse(["x", "y"], "x"),
}


def raw_examples(task: Task, vocabulary: Vocabulary, count: int = 6) -> EncodedExamples:
    """Sentences as the task reads them, of one word up."""
    texts = [" ".join(text.split()[: 1 + number]) for number, text in enumerate(sentences(count))]
    examples = [task.example_of(text) for text in texts]
    encoded = EncodedExamples.of(task, examples, vocabulary, LENGTH)
    with_lasts(encoded.units)
    return EncodedExamples(encoded.examples, encoded.units, vocabulary, LENGTH)


def batch_of(task: Task, vocabulary: Vocabulary, packed: bool = False) -> TokenBatch:
    examples = raw_examples(task, vocabulary)
    groups = np.arange(len(examples))
    if packed:
        return examples.packed(groups, 2, 2 * LENGTH)
    return examples.padded(groups)


def model_of(task: Task, vocabulary: Vocabulary, encoder: str = "bert") -> TaskModel:
    torch.manual_seed(0)
    layers = RECURRENT_LAYERS if encoder == "bilstm" else 3
    embedding = 8 if encoder == "albert" else 0
    shape = Shape(len(vocabulary), layers, 16, 2, 24, LENGTH, embedding=embedding)
    model = TaskModel(new_encoder(encoder, shape, vocabulary), task.head(16, 0.0))
    stir(model, 0.15)
    return model.eval()


def student_of(
    name: str, task: Task, vocabulary: Vocabulary, model: TaskModel, **changes: Any
) -> Student:
    torch.manual_seed(1)
    settings = replace(Finetune(unlabelled=name), **changes)
    room = Classroom(task.consistency(), vocabulary, settings)
    encoder: Any = model.encoder
    return STUDENTS.get(name)(room, encoder)
