"""The analyses behind the report's pictures, as plain values: one artefact of the run folder, so
that a report does not compute them again.

docs/methods/insights.md says what each of them means.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from tasklm.analysis.attention_heads import attention_heads, has_visible_heads
from tasklm.analysis.class_vectors import class_vectors
from tasklm.analysis.label_words import label_words
from tasklm.analysis.matching import matching_words
from tasklm.evaluate.calibration import calibration
from tasklm.models.language_model import under
from tasklm.models.task_model import new_encoder
from tasklm.models.weights import load_weights
from tasklm.objectives.base import OBJECTIVES
from tasklm.pipeline.context import CorpusData, Run, TaskData, training_settings
from tasklm.recipe.model_sections import Train
from tasklm.run_folder import Seed, best_seed
from tasklm.select.base import asking_split, selection_is_clear
from tasklm.storage.files import digest, read_json, write_text
from tasklm.tasks.base import Answer
from tasklm.train.loop import step_seed
from tasklm.train.stages import Ingredients, begin

FORMAT = 2  # part of the key: raise it when an analysis changes
NAME = "insights"
STAGES = ("before training", "after stage 1", "after stage 2")
SELECTED = (
    2000  # passages of the selection whose words are counted: as many as the sample of a corpus has
)
GROUPS = 20  # row groups of the selection's file that these are read from, at most
ASKING_BY_WORDS = ("bm25", "balanced")  # methods whose queries are the words of task examples


def insights(
    run: Run,
    task: TaskData,
    corpus: CorpusData | None,
    selected: Path | None,
    parts: Ingredients,
    seeds: list[Seed],
    predictions: Mapping[str, list[list[Answer]]],
) -> dict[str, Any]:
    """What is known of the model of the seed that is best on dev: "calibration", "class_vectors",
    "attention", "label_words".

    A part that does not apply to the kind of task, the encoder or the run is left out. All
    processes of a run must call this.
    """
    best = best_seed(seeds)
    own = {split: answers[seeds.index(best)] for split, answers in predictions.items()}
    parts_of: dict[str, Callable[[], Any]] = {
        "calibration": lambda: _calibration(task, own),
        "class_vectors": lambda: _class_vectors(run, task, parts, best),
        "attention": lambda: _attention(parts, best),
        "label_words": lambda: _label_words(task, corpus, selected),
    }

    def build(folder: Path) -> None:
        found = {name: value for name, make in parts_of.items() if (value := make()) is not None}
        write_text(folder / "insights.json", json.dumps(found, ensure_ascii=False) + "\n")

    # the keys of the seeds hash all that came before them: task, selection, vocabulary, both stages
    key = digest([NAME, FORMAT, [seed.key for seed in seeds]])
    read = [
        best.training,
        run.artefacts.path("predictions"),
        best.folder,
        *([] if selected is None else [selected.parent]),
    ]
    values: dict[str, Any] = read_json(
        run.artefacts.build(NAME, key, build, uses=read) / "insights.json"
    )
    return values


def matched_words(
    run: Run,
    task: TaskData,
    corpus: CorpusData,
    selected: Path,
    passages: Sequence[Mapping[str, Any]],
) -> list[list[str]]:
    """For each of some rows of the selection the words that match the task example that asked for
    it first.

    None where nobody asked by words: passages drawn at random, or chosen by features or by
    gradients.
    """
    settings = run.recipe.select
    asked = [row["asked_by"][0] if len(row["asked_by"]) else None for row in passages]
    if settings.method not in ASKING_BY_WORDS or all(number is None for number in asked):
        return [[] for _ in passages]
    texts = task.texts(asking_split(selected))
    askers = ["" if number is None else texts[number] for number in asked]
    return matching_words(
        [row["text"] for row in passages], askers, settings, texts, corpus.store.sample()
    )


def drawn_encoder(parts: Ingredients, settings: Train) -> Any:
    """The encoder as stage 1 begins with it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            step_seed(settings.seed, 0)
        )  # as train.stages.joint_stage does, which draws the encoder first
        shape = dataclasses.replace(parts.shape, dropout=settings.dropout)
        encoder = new_encoder(parts.encoder, shape)
        objective = OBJECTIVES.get(settings.objective)(
            parts.encoder, shape, parts.vocabulary, settings
        )
        begin(SimpleNamespace(encoder=encoder, objective=objective), parts, settings)
    return encoder.to(parts.machine.device)


def _calibration(task: TaskData, answers: Mapping[str, list[Answer]]) -> dict[str, Any] | None:
    if not task.task.classifies or not all(
        "probabilities" in answer for some in answers.values() for answer in some
    ):
        return None
    gold = {
        split: [str(example.label) for example in task.splits.named()[split]] for split in answers
    }
    return calibration(task.task.labels, gold, answers)


def _class_vectors(
    run: Run, task: TaskData, parts: Ingredients, seed: Seed
) -> dict[str, Any] | None:
    if not task.task.classifies:
        return None

    settings = training_settings(run.recipe.train, seed.stage1)

    def stages() -> Iterator[tuple[str, nn.Module]]:
        yield STAGES[0], drawn_encoder(parts, settings)
        yield STAGES[1], _encoder_of(parts, seed.training / "model.safetensors")
        yield STAGES[2], _encoder_of(parts, seed.weights)

    return class_vectors(
        stages(), task.task, task.splits.dev, parts.vocabulary, parts.length, parts.machine
    )


def _attention(parts: Ingredients, seed: Seed) -> dict[str, Any] | None:
    encoder = _encoder_of(parts, seed.weights)
    if not has_visible_heads(encoder):
        return None
    return attention_heads(encoder, parts.dev, parts.vocabulary, parts.machine.device)


def _encoder_of(parts: Ingredients, weights: Path) -> Any:
    encoder = new_encoder(parts.encoder, parts.shape)
    encoder.load_state_dict(under("encoder.", load_weights(weights)))
    return encoder.to(parts.machine.device)


def _label_words(
    task: TaskData, corpus: CorpusData | None, selected: Path | None
) -> list[dict[str, Any]] | None:
    if not task.task.classifies or corpus is None or selected is None:
        return None
    labels = [str(example.label) for example in task.splits.train]
    return label_words(
        task.texts("train"), labels, spread_texts(selected, SELECTED), corpus.store.sample()
    )


def spread_texts(selected: Path, most: int) -> Iterator[str]:
    """Yields the texts of at most `most` passages that lie evenly over a stored selection, best
    first.
    """
    with selection_is_clear(selected), pq.ParquetFile(selected) as file:
        count = min(file.num_row_groups, GROUPS)
        groups = np.linspace(0, file.num_row_groups - 1, count).round().astype(int).tolist()
        sizes = [file.metadata.row_group(group).num_rows for group in groups]
        share = min(1.0, most / max(1, sum(sizes)))
        for group, size in zip(groups, sizes, strict=True):
            texts = file.read_row_group(group, columns=["text"]).column(0)
            for row in np.linspace(0, size - 1, round(share * size)).round().astype(int).tolist():
                yield texts[row].as_py()
