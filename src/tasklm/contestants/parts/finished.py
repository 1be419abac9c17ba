"""A trained model of tasklm, in a run, by itself or exported, as a contestant."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasklm.bill.record import BILL
from tasklm.contestants.base import Job, bytes_in
from tasklm.errors import RunError
from tasklm.recipe.schema import Hardware
from tasklm.run_folder import MODEL, is_run
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import ARTEFACT
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Example


@dataclass(frozen=True)
class FinishedModel:
    """A model that answers by its predictor."""

    predictor: Predictor

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        task = self.predictor.task
        return [task.label_of(answer) for answer in self.predictor.answers(examples)]


def finished_model(job: Job, folder: Path) -> FinishedModel:
    """The model of a folder; raises RunError where it is of another task than a job's."""
    given = job.recipe.hardware
    hardware = Hardware(precision="fp32", threads=given.threads, device=given.device)
    if not is_exported(folder):
        hardware = dataclasses.replace(hardware, memory=given.memory)
    predictor = Predictor(folder, hardware)
    task = predictor.task
    if task.kind != job.task.kind or set(task.labels) != set(job.task.labels):
        theirs = f"{task.kind}, {len(task.labels)} labels"
        ours = f"{job.task.kind}, {len(job.task.labels)} labels"
        raise RunError(
            f"{folder} is a model of another task ({theirs}) than the data ({ours}); name one of "
            "the same labels."
        )
    return FinishedModel(predictor)


def is_exported(folder: Path) -> bool:
    """Whether a folder is an export."""
    return (folder / "export.json").is_file()


def model_in(source: Path) -> Path:
    """The folder of the model that a run has, or that a folder is."""
    if is_run(source):
        return source / MODEL
    return source


def model_bytes(folder: Path) -> int:
    """The bytes of a model, without the records of the artefact and of what it has read."""
    records = [folder / name for name in (ARTEFACT, BILL)]
    return bytes_in(folder) - sum(file.stat().st_size for file in records if file.is_file())
