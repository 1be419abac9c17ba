"""The analyses behind the report's pictures, as plain values: one artefact of the run folder, so
that a report does not compute them again.

docs/methods/insights.md explains each of them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
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
from tasklm.pipeline.context import CorpusData, Run, TaskData, Trained, training_settings
from tasklm.recipe.model_sections import Train
from tasklm.run_folder import Seed
from tasklm.select.base import asking_split, selection_is_clear
from tasklm.storage.files import digest, read_json, write_text
from tasklm.train.context import TrainingContext
from tasklm.train.stages import begin
from tasklm.train.steps import step_seed

FORMAT = 2  # part of the key: raise it when an analysis changes
NAME = "insights"
STAGES = ("before training", "after stage 1", "after stage 2")
# passages of the selection whose words are counted: as many as the sample of a corpus has
COUNTED_PASSAGES = 2000
GROUPS = 20  # row groups of the selection's file that these are read from, at most
ASKING_BY_WORDS = ("bm25", "balanced")  # methods whose queries are the words of task examples


def insights(trained: Trained) -> dict[str, Any]:
    """The results of the analyses of the model that is best on dev, by name.

    A part that does not apply to the kind of task, the encoder or the run is left out. All
    processes of a run must call this.
    """
    run, best, selected = trained.run, trained.best, trained.selected
    analyses: dict[str, Callable[[], Any]] = {
        "calibration": lambda: _calibration(trained),
        "class_vectors": lambda: _class_vectors(trained),
        "attention": lambda: _attention(trained.parts, best),
        "label_words": lambda: _label_words(trained.task, trained.corpus, selected),
    }
    if not trained.has_network:
        analyses = {name: analyses[name] for name in ("calibration", "label_words")}

    def build(folder: Path) -> None:
        results = {name: analyse() for name, analyse in analyses.items()}
        known = {name: result for name, result in results.items() if result is not None}
        write_text(folder / "insights.json", json.dumps(known, ensure_ascii=False) + "\n")

    # the keys of the seeds hash all that came before them: task, selection, vocabulary, both stages
    key = digest([NAME, FORMAT, [seed.key for seed in trained.seeds]])
    uses = [best.training, run.artefacts.path("predictions"), best.folder]
    if selected is not None:
        uses.append(selected.parent)
    folder = run.artefacts.build(NAME, key, build, uses=uses)
    values: dict[str, Any] = read_json(folder / "insights.json")
    return values


def matched_words(
    run: Run,
    task: TaskData,
    corpus: CorpusData,
    selected: Path,
    passages: Sequence[Mapping[str, Any]],
) -> list[list[str]]:
    """For each of some selected passages its words that match the first example that retrieved it.

    None where no example retrieved it by words: passages drawn at random, or chosen by features or
    by gradients.
    """
    settings = run.recipe.select
    queries = [row["matched_queries"] for row in passages]
    if settings.method not in ASKING_BY_WORDS or not any(map(len, queries)):
        return [[] for _ in passages]
    texts = task.texts(asking_split(selected))
    best = [texts[own[0]] if len(own) else "" for own in queries]
    return matching_words(
        [row["text"] for row in passages], best, settings, texts, corpus.store.sample()
    )


def drawn_encoder(parts: TrainingContext, settings: Train) -> Any:
    """The encoder as stage 1 begins with it."""
    with torch.random.fork_rng(devices=[]):
        # as train.stages.joint_stage does, which draws the encoder first
        torch.manual_seed(step_seed(settings.seed, 0))
        shape = dataclasses.replace(parts.shape, dropout=settings.dropout)
        encoder = new_encoder(parts.encoder, shape, parts.vocabulary)
        objective = OBJECTIVES.get(settings.objective)(
            parts.encoder, shape, parts.vocabulary, settings
        )
        begin(SimpleNamespace(encoder=encoder, objective=objective), parts, settings)
    return encoder.to(parts.machine.device)


def _calibration(trained: Trained) -> dict[str, Any] | None:
    task, splits = trained.task.task, trained.task.splits.named()
    answers = {split: trained.best_answers(split) for split in trained.predictions}
    if not task.classifies:
        return None
    if not all("probabilities" in answer for answer in chain.from_iterable(answers.values())):
        return None
    gold = {split: [str(example.label) for example in splits[split]] for split in answers}
    return calibration(task.labels, gold, answers)


def _class_vectors(trained: Trained) -> dict[str, Any] | None:
    task, parts, seed = trained.task, trained.parts, trained.best
    if not task.task.classifies:
        return None

    settings = training_settings(trained.run.recipe.train, seed.stage1)

    def stages() -> Iterator[tuple[str, nn.Module]]:
        yield STAGES[0], drawn_encoder(parts, settings)
        yield STAGES[1], _encoder_of(parts, seed.training / "model.safetensors")
        yield STAGES[2], _encoder_of(parts, seed.weights)

    return class_vectors(
        stages(), task.task, task.splits.dev, parts.vocabulary, parts.length, parts.machine
    )


def _attention(parts: TrainingContext, seed: Seed) -> dict[str, Any] | None:
    encoder = _encoder_of(parts, seed.weights)
    if not has_visible_heads(encoder):
        return None
    return attention_heads(encoder, parts.dev, parts.vocabulary, parts.machine.device)


def _encoder_of(parts: TrainingContext, weights: Path) -> Any:
    encoder = new_encoder(parts.encoder, parts.shape, parts.vocabulary)
    encoder.load_state_dict(under("encoder.", load_weights(weights)))
    return encoder.to(parts.machine.device)


def _label_words(
    task: TaskData, corpus: CorpusData | None, selected: Path | None
) -> list[dict[str, Any]] | None:
    if not task.task.classifies or corpus is None or selected is None:
        return None
    labels = [str(example.label) for example in task.splits.train]
    return label_words(
        task.texts("train"), labels, spread_texts(selected, COUNTED_PASSAGES), corpus.store.sample()
    )


def spread_texts(selected: Path, most: int) -> Iterator[str]:
    """The texts of at most `most` passages that lie evenly over a stored selection, best first."""
    with selection_is_clear(selected), pq.ParquetFile(selected) as file:
        count = min(file.num_row_groups, GROUPS)
        groups = np.linspace(0, file.num_row_groups - 1, count).round().astype(int).tolist()
        sizes = [file.metadata.row_group(group).num_rows for group in groups]
        share = min(1.0, most / max(1, sum(sizes)))
        for group, size in zip(groups, sizes, strict=True):
            texts = file.read_row_group(group, columns=["text"]).column(0)
            for row in np.linspace(0, size - 1, round(share * size)).round().astype(int).tolist():
                yield texts[row].as_py()
