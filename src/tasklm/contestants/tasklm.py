"""A model that tasklm trains now, by the whole flow, within the minutes."""

from __future__ import annotations

from dataclasses import replace

from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained
from tasklm.contestants.parts.finished import FinishedModel, finished_model, model_bytes
from tasklm.contestants.run import own_row
from tasklm.errors import RunError
from tasklm.pipeline import flow
from tasklm.run_folder import CLOCK, MODEL
from tasklm.storage.files import make_folder, read_json, remove, write_json

KEY = "compared.json"  # in the run: what it is trained for
LINEAR = "its model is the linear one of words: no network was better on dev"


@CONTESTANTS.register("tasklm")
class TaskLMItself(Trained):
    """The whole flow of `tasklm fit`, in a run folder of its own."""

    def learn(self, job: Job) -> Learned:
        """Trains, or continues where it was stopped."""
        _begin(job)
        minutes = job.seconds / 60
        recipe = job.recipe.changed(budget={"minutes": minutes}, evaluate={"compare": []})
        scores = flow.fit(recipe, job.runs, job.tracker)
        row = own_row(job.runs)
        if scores is None or row is None:
            raise RunError(f"{job.runs} has no scores. Run the same command again.")
        learned = Learned(
            row.name,
            model_bytes(job.runs / MODEL),
            flops=row.flops_exact,
            parameters=row.parameters,
            reads_text=row.selected_passages > 0,
            outside_weights=bool(recipe.train.start),
            seconds=float(read_json(job.runs / CLOCK)["seconds"]),
        )
        if scores.linear:
            return replace(learned, setting=LINEAR, note=LINEAR)
        return learned

    def load(self, job: Job) -> FinishedModel:
        """The model that the run keeps."""
        return finished_model(job, job.runs / MODEL)


def _begin(job: Job) -> None:
    """Keeps the run that was begun for the same key; removes another."""
    file = job.runs / KEY
    if job.runs.exists() and (not file.exists() or read_json(file) != job.key):
        remove(job.runs)
    make_folder(job.runs)
    write_json(file, job.key)
