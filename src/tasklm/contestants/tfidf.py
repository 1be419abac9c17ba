"""The package's own linear model of words, with features and strength chosen on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained, bytes_in
from tasklm.contestants.parts.saved_task import read_task, write_task
from tasklm.errors import RunError
from tasklm.tasks.base import Label, Task
from tasklm.tasks.baselines.wide_parts import AnyWide, read_wide
from tasklm.tasks.examples import Example

WIDE = "wide"


@CONTESTANTS.register("tfidf")
class Tfidf(Trained):
    """TF-IDF of words and letters; of tags the words around, of choices words in common."""

    uses_minutes: ClassVar[bool] = False

    def learn(self, job: Job) -> Learned:
        """Fits the linear model that is the wide part of tasklm's models."""
        fitted = job.task.fit_wide(job.train, job.dev, job.metric)
        if fitted is None:
            why = f"tasks of kind {job.task.kind} have no linear model, or no text to count"
            raise RunError(f"{why}.")
        fitted.wide.save(job.folder / WIDE)
        units, values = fitted.wide.units_with(job.task, job.dev, fitted.wide.outputs(job.dev))
        write_task(job.folder, job.task.tuned(job.dev, units, values))
        linear = fitted.wide.linear
        return Learned(
            f"features: {' and '.join(linear.view)}",
            bytes_in(job.folder),
            parameters=int(linear.weights.size + linear.offsets.size),
        )

    def load(self, job: Job) -> LinearModel:
        """The linear model."""
        return LinearModel(read_task(job.folder), read_wide(job.folder / WIDE))


@dataclass(frozen=True)
class LinearModel:
    """A linear model of words that answers as a model's wide part alone does."""

    task: Task
    wide: AnyWide

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        units, values = self.wide.units_with(self.task, examples, self.wide.outputs(examples))
        return [self.task.label_of(one) for one in self.task.answers(examples, units, values)]
