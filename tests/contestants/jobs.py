"""Jobs for contestants, on small data of every kind, and what they make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tasklm.contestants.base import CONTESTANTS, Job, Learned
from tasklm.device.machine import Machine
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.toml import load
from tasklm.tasks.base import TASKS, Label, score
from tasklm.tasks.readers.labelled_share import labelled_data
from tasklm.tasks.readers.splits import resolved
from tests.end_to_end.kind_data import CASES, Case

KINDS = {case.kind: case for case in CASES}
CPU = Machine(torch.device("cpu"), False, 1)


def files_of(case: Case, folder: Path, counts: Sequence[int] = (120, 40, 40)) -> dict[str, str]:
    """Writes the splits of a kind; their names as keys of a recipe."""
    files = {}
    for seed, (split, count) in enumerate(zip(("train", "dev", "test"), counts, strict=True), 1):
        file = case.write(folder / f"{split}{case.suffix}", case.rows(count, seed))
        files[f"data.{split}"] = str(file)
    return files


def job_of(kind: str, folder: Path, **changes: Any) -> Job:
    """What a contestant is given: the examples of a kind, a minute and a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = changes.pop("corpus", None)
    keys: dict[str, Any] = files_of(KINDS[kind], folder)
    if texts is not None:
        corpus = folder / "corpus.jsonl"
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        corpus.write_text("".join(lines), encoding="utf-8")
        keys["data.corpus"] = [str(corpus)]
    recipe = load(None, keys)
    recipe = recipe.changed(data={"kind": resolved(recipe.data).kind})
    _, splits, _ = labelled_data(recipe)
    task = TASKS.get(kind).from_examples(splits.train, Kind())
    model = folder / "model"
    model.mkdir()
    held = {"dev": splits.dev, "test": splits.test}
    given: dict[str, Any] = {
        "recipe": recipe,
        "task": task,
        "metric": task.metrics[0],
        "train": splits.train,
        "dev": splits.dev,
        "held_out": {name: [one.text for one in part] for name, part in held.items()},
        "seconds": 60.0,
        "machine": CPU,
        "folder": model,
        "runs": folder / "runs",
    }
    return Job(**{**given, **changes})


def test_score(name: str, job: Job) -> tuple[Learned, float, list[Label]]:
    """What a contestant learns, and how the model that it has written scores on test."""
    contestant = CONTESTANTS.get(name)()
    assert contestant.against(job.task) == ""
    learned = contestant.learn(job)
    _, splits, _ = labelled_data(job.recipe)
    labels = contestant.load(job).labels(splits.test)
    gold = [example.label for example in splits.test]
    return learned, score(job.task.metric(job.metric), gold, labels), labels


test_score.__test__ = False  # type: ignore[attr-defined]
