"""Calibrates the models of a finished run on dev, and measures on test what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.coverage.calibration import (
    FILE,
    FORMAT,
    Calibration,
    content_of_model,
    write_calibrations,
)
from tasklm.coverage.measured import ARTEFACT_NAME as NAME
from tasklm.coverage.measured import MEASURED, PROMISED, measured
from tasklm.evaluate.scores import Scores
from tasklm.pipeline import evaluation
from tasklm.pipeline.context import Predictions, Trained
from tasklm.run_folder import ENSEMBLE, MODEL, by_training, number_of_update
from tasklm.storage.checksums import content_of
from tasklm.storage.files import digest, read_json, write_bytes, write_json
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.members import Member
from tasklm.tasks.several import members_of


@dataclass(frozen=True)
class Part:
    """A task of the run: its examples and the answers of a model, by split."""

    name: str  # of one of several; else ""
    task: Task
    examples: dict[str, list[Example]]
    answers: dict[str, list[Answer]]


def keep_coverage(trained: Trained, scores: Scores) -> None:
    """Writes coverage.json into model/ and, where there is one, into ensemble/."""
    run = trained.run
    if number_of_update(run.folder):
        return  # an updated model has the calibration of its update
    models = {MODEL: _shipped(trained, scores)}
    if any(row.kind == "ensemble" for row in scores.rows):
        together = evaluation.predict_together(run, trained.task, trained.parts, trained.seeds)
        models[ENSEMBLE] = {split: answers[0] for split, answers in together.items()}
    parts = {name: _parts(trained, answers) for name, answers in models.items()}
    if not any(one for one in parts.values()):
        return

    def build(folder: Path) -> None:
        with run.tracker.progress("calibrating sets of labels on dev"):
            for name, own in parts.items():
                _calibrate(folder / name, run.artefacts.path(name), own, trained)

    contents = {name: content_of(run.artefacts.path(name)) for name in models}
    used = [run.artefacts.path(name) for name in models]
    folder = run.artefacts.build(NAME, digest([NAME, FORMAT, contents]), build, uses=used)
    if not run.machine.ranks.first:
        return
    for name in models:
        write_bytes(run.artefacts.path(name) / FILE, (folder / name / FILE).read_bytes())


def _shipped(trained: Trained, scores: Scores) -> dict[str, list[Answer]]:
    """The answers of the model in model/: of the best seed, or of the mean of several."""
    predictions: Predictions = trained.predictions
    place = trained.best_place
    if scores.averaged:
        predictions = evaluation.predict_soups(
            trained.run, trained.task, trained.parts, trained.seeds
        )
        about = read_json(trained.run.artefacts.path(MODEL) / "config.json")["about"]
        first = [members[0].stage1 for members in by_training(trained.seeds)]
        place = first.index(about["stage1"])
    return {split: answers[place] for split, answers in predictions.items()}


def _parts(trained: Trained, answers: dict[str, list[Answer]]) -> list[Part]:
    """The tasks that have sets."""
    splits = trained.task.splits.named()
    task = trained.task.task
    if members := members_of(task):
        return [_of_member(one, splits, answers) for one in members if one.task.sets is not None]
    return [] if task.sets is None else [Part("", task, splits, answers)]


def _of_member(
    member: Member, splits: dict[str, list[Example]], answers: dict[str, list[Answer]]
) -> Part:
    """One of several tasks, with its own examples."""
    own = {
        split: [
            answer
            for answer, example in zip(of_all, splits[split], strict=True)
            if example.task == member.name
        ]
        for split, of_all in answers.items()
    }
    examples = {split: member.own(every) for split, every in splits.items()}
    return Part(member.name, member.task, examples, own)


def _calibrate(folder: Path, model: Path, parts: Sequence[Part], trained: Trained) -> None:
    """Writes the calibration of a model's tasks, and what is measured on test."""
    folder.mkdir(parents=True, exist_ok=True)
    calibrations: dict[str, Calibration] = {}
    results: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        sets = part.task.sets
        assert sets is not None
        own = Calibration.of(
            sets, part.examples["train"], part.examples["dev"], part.answers["dev"]
        )
        test = part.examples.get("test", [])
        results[part.name] = [
            measured(sets, own, promised, test, part.answers.get("test", [])).to_dict()
            for promised in PROMISED
        ]
        calibrations[part.name] = own
    config = read_json(model / "config.json")
    write_calibrations(folder, content_of_model(config), calibrations)
    write_json(folder / MEASURED, results)
