"""One contestant at work: it learns, then its model labels dev and, once, test."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.comparing.entries import Entry
from tasklm.comparing.results import Cost
from tasklm.contestants.base import Job
from tasklm.device.machine import Machine, set_up
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.schema import Hardware, Recipe, from_dict, to_dict
from tasklm.storage.files import make_folder, read_json, write_json
from tasklm.tasks.base import TASKS, Label
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.labelled_share import labelled_data
from tasklm.tracking import Tracker

MODEL, OUTCOME = "model", "outcome.json"
LABELS = "labels.json"  # of dev and test
_UNIT = {"darwin": 1}  # bytes that systems count memory in


@dataclass(frozen=True)
class Order:
    """What a contestant is asked to do: plain values, which another process can read."""

    entry: Entry
    recipe: Recipe
    metric: str
    seconds: float
    folder: Path  # of its artefact
    runs: Path  # for a training in several steps
    key: str = ""  # of its artefact

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "entry": dataclasses.asdict(self.entry),
            "recipe": to_dict(self.recipe),
            "metric": self.metric,
            "seconds": self.seconds,
            "folder": str(self.folder),
            "runs": str(self.runs),
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Order:
        """The order that `to_dict` wrote."""
        return cls(
            Entry(**values["entry"]),
            from_dict(values["recipe"]),
            values["metric"],
            float(values["seconds"]),
            Path(values["folder"]),
            Path(values["runs"]),
            values["key"],
        )

    def job(self, splits: Splits, machine: Machine, tracker: Tracker) -> Job:
        """What the contestant learns from: train and dev, without the labels of test."""
        task = TASKS.get(self.recipe.data.kind).from_examples(splits.train, Kind(marks=()))
        held_out = {name: [one.text for one in part] for name, part in _held(splits).items()}
        return Job(
            recipe=self.recipe,
            task=task,
            metric=self.metric,
            train=splits.train,
            dev=splits.dev,
            held_out=held_out,
            seconds=self.seconds,
            machine=machine,
            folder=make_folder(self.folder / MODEL),
            runs=self.runs,
            key=self.key,
            source=self.entry.path,
            tracker=tracker,
        )


@dataclass(frozen=True)
class TrainedContestant:
    """What a contestant leaves behind: its labels, and what they took."""

    cost: Cost
    setting: str
    note: str
    labels: dict[str, list[Label]]

    @classmethod
    def read(cls, folder: Path) -> TrainedContestant:
        """The outcome in the folder of an artefact."""
        values = read_json(folder / OUTCOME)
        cost = Cost(**values["cost"])
        return cls(cost, values["setting"], values["note"], read_json(folder / LABELS))


def train(order: Order, tracker: Tracker) -> None:
    """Carries out an order in this process; the time counts from here on."""
    started = time.monotonic()
    machine = set_up(_hardware(order.recipe))
    _, splits, _ = labelled_data(order.recipe)
    contestant, job = order.entry.contestant(), order.job(splits, machine, tracker)
    learned = contestant.learn(job)
    seconds, memory = time.monotonic() - started, peak_memory()
    if learned.seconds is not None:
        seconds = learned.seconds
    if order.entry.source and not contestant.uses_minutes:
        memory = 0.0  # it was trained before
    model = contestant.load(job)
    with tracker.progress("predicting dev and test"):
        labels = {
            name: model.labels([_unlabelled(one) for one in part])
            for name, part in _held(splits).items()
        }
    cost = Cost(
        seconds=round(seconds, 3),
        memory=memory,
        size=learned.size,
        flops=learned.flops,
        parameters=learned.parameters,
        reads_text=learned.reads_text,
        outside_weights=learned.outside_weights,
        device=machine.device.type,
    )
    write_json(order.folder / LABELS, labels)
    about = {"cost": dataclasses.asdict(cost), "setting": learned.setting, "note": learned.note}
    write_json(order.folder / OUTCOME, about)


def _held(splits: Splits) -> dict[str, list[Example]]:
    return {name: part for name, part in splits.named().items() if name != "train"}


def _unlabelled(example: Example) -> Example:
    """An example as a person asks about it: a model may not know its label."""
    return dataclasses.replace(example, label=None)


def _hardware(recipe: Recipe) -> Hardware:
    """The settings of the machine, without compilation, which tasklm's own flow decides itself."""
    return dataclasses.replace(recipe.hardware, compile="off")


def peak_memory() -> float:
    """The most bytes that this process, or one that it has started and that has ended, has held."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    most = max(resource.getrusage(one).ru_maxrss for one in who)
    return float(most * _UNIT.get(sys.platform, 1024))
