"""The interface of a contestant: a way to make a model of a task, which `tasklm compare` scores and
times beside others.

One file per contestant. All of them see the same examples of train and dev, and dev alone chooses
their settings; the examples of test are predicted once, by the model that is then there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from tasklm.device.machine import Machine
from tasklm.recipe.schema import Recipe
from tasklm.registry import Registry
from tasklm.tasks.base import Label, Task
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT, Tracker


@dataclass(frozen=True)
class Job:
    """What a contestant learns from, how long it may take, and where its files go."""

    recipe: Recipe  # the files of the task and of the corpus, and settings of tasklm's own model
    task: Task  # with the default settings of its kind
    metric: str
    train: Sequence[Example]
    dev: Sequence[Example]
    held_out: Mapping[str, Sequence[str]]  # texts of dev and test: the corpus must not have them
    seconds: float
    machine: Machine
    folder: Path  # of its model
    runs: Path  # for a training in several steps, which continues where it was stopped
    key: str = ""  # changes with all that changes the model
    source: Path | None = None  # the folder that the user gave it
    tracker: Tracker = field(default=SILENT)


@dataclass(frozen=True)
class Learned:
    """What a contestant has chosen, and what its model takes."""

    setting: str  # what dev chose
    size: int  # bytes of the files that predicting needs
    flops: float = 0.0  # of the training; 0: not counted
    parameters: int = 0  # 0: not counted
    reads_text: bool = False  # raw text besides the labelled examples
    outside_weights: bool = False  # that others trained
    seconds: float | None = None  # of the training where that was earlier; None: as measured now
    note: str = ""  # what a reader of the table must know


class Model(Protocol):
    """A trained contestant."""

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        ...


class Contestant(Protocol):
    """A way to make a model of a task."""

    takes_folder: ClassVar[bool]  # whether the user gives it a folder: NAME=FOLDER
    uses_minutes: ClassVar[bool]  # whether more minutes may give another model
    is_timed: ClassVar[bool]  # whether the latency of its model is measured

    @classmethod
    def check(cls, source: Path) -> None:
        """Raises an error, with the way out, for a folder that it cannot read."""
        ...

    @classmethod
    def against(cls, task: Task) -> str:
        """Why it cannot do a task; "" if it can, as far as that is known before it tries."""
        ...

    def learn(self, job: Job) -> Learned:
        """Learns within the seconds of a job, and writes the model to its folder."""
        ...

    def load(self, job: Job) -> Model:
        """The model that `learn` wrote."""
        ...


class Trained:
    """A contestant that learns from the labelled examples, without a folder of the user's."""

    takes_folder: ClassVar[bool] = False
    uses_minutes: ClassVar[bool] = True
    is_timed: ClassVar[bool] = True

    @classmethod
    def check(cls, source: Path) -> None:
        """Nothing: it reads no folder."""

    @classmethod
    def against(cls, task: Task) -> str:
        """Nothing: it takes every kind of task."""
        return ""


def bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder and below it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


CONTESTANTS: Registry[type[Contestant]] = Registry("contestant", "tasklm.contestants")
