"""A model that tasklm has trained before: run=FOLDER, a run or the folder of a model."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tasklm.contestants.base import CONTESTANTS, Job, Learned
from tasklm.contestants.parts.finished import (
    FinishedModel,
    finished_model,
    is_exported,
    model_bytes,
    model_in,
)
from tasklm.corpus.dedupe import text_key
from tasklm.errors import DataError, RunError
from tasklm.evaluate.scores import Row, from_dict
from tasklm.run_folder import MODEL, SCORES, find_run, recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import Task
from tasklm.tasks.readers.splits import read_splits

UNKNOWN = "what it was trained on is not known: it may have seen the test examples"


@CONTESTANTS.register("run")
class FinishedRun:
    """The model of a finished run."""

    takes_folder: ClassVar[bool] = True
    uses_minutes: ClassVar[bool] = False
    is_timed: ClassVar[bool] = True

    @classmethod
    def check(cls, source: Path) -> None:
        """Raises RunError for a folder without a model."""
        if is_exported(source):
            raise RunError(f"{source} is an export. Compare it as onnx={source}.")
        if not (model_in(source) / "config.json").is_file():
            raise RunError(
                f"{source} has no trained model. Give a finished run, such as runs/first, or the "
                f"folder {MODEL} of one."
            )

    @classmethod
    def against(cls, task: Task) -> str:
        """Nothing is known before it is opened."""
        return ""

    def learn(self, job: Job) -> Learned:
        """Nothing is learnt; its costs are those of its run, if that is there."""
        assert job.source is not None
        folder = model_in(job.source)
        finished_model(job, folder)
        run = find_run(folder)
        size = model_bytes(folder)
        if run is None:
            return Learned("trained before", size, note=UNKNOWN, seconds=0.0)
        row, note = own_row(run), seen_in_training(job, run)
        if row is None:
            return Learned("trained before", size, note=note, seconds=0.0)
        return Learned(
            "trained before",
            size,
            flops=row.flops_exact,
            parameters=row.parameters,
            reads_text=row.selected_passages > 0,
            outside_weights=bool(recipe_of(run).train.start),
            seconds=row.seconds,
            note=note,
        )

    def load(self, job: Job) -> FinishedModel:
        """The model itself."""
        assert job.source is not None
        return finished_model(job, model_in(job.source))


def own_row(run: Path) -> Row | None:
    """The row of a run's own model in its score table; None before it is scored."""
    if not (run / SCORES).is_file():
        return None
    return from_dict(read_json(run / SCORES)).ours


def seen_in_training(job: Job, run: Path) -> str:
    """How many of the held-out texts a run has trained on, in words; "" for none."""
    try:
        data = recipe_of(run).data
        trained = {text_key(example.text) for example in read_splits(data).train}
    except DataError:
        return UNKNOWN
    counts = {
        split: sum(text_key(text) in trained for text in texts)
        for split, texts in job.held_out.items()
    }
    seen = ", ".join(f"{count:,} of {split}" for split, count in counts.items() if count)
    if not seen:
        return ""
    return f"it was trained on texts that are scored here: {seen}"
