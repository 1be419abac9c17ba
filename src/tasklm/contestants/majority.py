"""The answer that is most frequent in train, for everything: what a model has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Example


@CONTESTANTS.register("majority")
class Majority(Trained):
    """The first of the baselines of the kind, which needs no model."""

    uses_minutes: ClassVar[bool] = False
    is_timed: ClassVar[bool] = False

    def learn(self, job: Job) -> Learned:
        """Nothing to learn."""
        return Learned("the most frequent answer of train", 0)

    def load(self, job: Job) -> MajorityModel:
        """The answers."""
        return MajorityModel(job)


@dataclass(frozen=True)
class MajorityModel:
    """Counts the answers of train each time that it is asked."""

    job: Job

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """The most frequent label, once per example."""
        held = {"asked": examples}
        baselines = self.job.task.baselines(self.job.train, held, self.job.metric)
        return next(iter(baselines.values()))["asked"]
