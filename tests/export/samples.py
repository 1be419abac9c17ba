"""Tiny models of every kind with weights that are nowhere neutral, made without training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.export.source import Source, open_source
from tasklm.models.task_model import ModelDescription, TaskModel, save_models
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.encoders.samples import stir

LENGTH = 24
SHAPE = Shape(vocabulary=0, layers=2, width=32, heads=4, feedforward=48, positions=LENGTH)
TASKS_OF = {
    "classify": {"labels": ["no", "yes – ja", "“maybe”"]},
    "multilabel": {"labels": ["a", "b", "c"], "thresholds": [0.5, 0.4, 0.3]},
    "regress": {"low": 0.0, "high": 5.0},
    "choice": {"options": 3},
    "tag": {"labels": ["B-X", "I-X", "O"], "scheme": "bio", "crf": False, "characters": False},
    "span": {"stride": 8, "answer_tokens": 5, "unanswerable": False, "threshold": 0.0},
}


def saved(
    folder: Path,
    vocabulary: Vocabulary,
    kind: str = "classify",
    encoder: str = "bert",
    embedding: int = 0,
    layers: int = 2,
    length: int = LENGTH,
    **task: Any,
) -> Source:
    """A model that was saved to a folder and opened again."""
    torch.manual_seed(3)
    shape = replace(
        SHAPE, vocabulary=len(vocabulary), embedding=embedding, layers=layers, positions=length
    )
    made: Any = TASKS.get(kind).from_dict({"kind": kind, **TASKS_OF[kind], **task})
    body = ENCODERS.get(encoder)(shape)
    model = TaskModel(body, made.head(shape.width, 0.0, body.normed_heads))
    stir(model)
    about = {"metric": made.metrics[0], "dev": 0.5, "seed": 1, "test": None}
    save_models(folder, ModelDescription(encoder, shape, made, vocabulary, length), [model], about)
    return open_source(folder)


def examples(kind: str) -> list[Example]:
    """Returns texts of several lengths, alone and in pairs, as the kind has them."""
    texts = sentences(12, 5)
    if kind == "choice":
        options = ("a dog", "cold water", "music .")
        return [
            Example((text, "what is it ?", *options), None, options=options) for text in texts[:3]
        ]
    singles = [Example((text,), None) for text in [*texts[:3], " ".join(texts[:4]), "a dog", ""]]
    return (
        singles
        if kind == "tag"
        else singles + [Example((texts[i], texts[-1 - i][: 10 + i]), None) for i in range(4)]
    )


def rows_of(source: Source, given: list[Example] | None = None) -> EncodedExamples:
    """Returns examples as the model's rows."""
    return EncodedExamples.of(
        source.task, given or examples(source.task.kind), source.vocabulary, source.length
    )


def ran(folder: Path) -> dict[str, Any]:
    """What the code of a card computes."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0].replace("FOLDER", str(folder)), found)
    return found
