"""What the steps pass on: the run with its folder and machine, and their data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.bill.network import Watched
from tasklm.budget.rules import Plan
from tasklm.budget.scope import Scope
from tasklm.console.clock import Clock
from tasklm.corpus.base import PassageSource
from tasklm.corpus.contamination import Contamination
from tasklm.corpus.corpus_text import CorpusText
from tasklm.device.machine import Machine
from tasklm.errors import DamagedError
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.model_sections import Train
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import CLOCK, Seed, best_seed, trainings_of
from tasklm.storage.files import read_json, write_record
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.readers.several import Source
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import Tracker
from tasklm.train.context import TrainingContext

Predictions = dict[str, list[list[Answer]]]  # split → answers of every seed


@dataclass
class Run:
    """One run: its recipe, its folder, and the machine it runs on."""

    recipe: Recipe
    artefacts: Artefacts
    cache: Artefacts
    machine: Machine
    tracker: Tracker
    clock: Clock = field(default_factory=Clock)
    scope: Scope = field(default_factory=Scope)  # until it is decided: everything
    inputs: Inputs = field(default_factory=Inputs)
    network: Watched | None = None  # where its calls are counted
    _found: dict[str, Any] | None = None  # the time recorded before this process

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.artefacts.folder

    @property
    def idle(self) -> bool:
        """Whether everything was there so far: this process has built nothing."""
        return not self.artefacts.builds and not self.cache.builds

    def seconds(self) -> float:
        """The time spent on this run so far, in this process and earlier ones."""
        seconds: float = self._before()["seconds"]
        return seconds + self.clock.seconds()

    def watch_network(self) -> None:
        """Counts the calls of this process to other machines from now on."""
        if self.machine.ranks.first:
            self.network = Watched.begin(self.folder)

    def keep_clock(self, step: str, ended: bool = False) -> None:
        """Records the time spent, for the next process: since the last record, on this step; and
        the calls to other machines; `ended`: nothing that follows changes the model. A process that
        found everything built leaves both as they were.
        """
        if not self.machine.ranks.first:
            return
        record, idle = self._before(), ended and self.idle
        self._found = self._found or record
        steps: dict[str, float] = record["steps"]
        steps = {**steps, step: round(steps.get(step, 0.0) + self.clock.seconds(), 3)}
        if idle:
            record = self._found
        else:
            record = {"seconds": round(self.seconds(), 3), "steps": steps}
        write_record(self.folder / CLOCK, record)
        self.clock.restart()
        if self.network is not None:
            self.network.keep(ended, idle)

    def timeline(self) -> dict[str, float]:
        """The seconds recorded so far by step, in the order of the flow."""
        steps: dict[str, float] = self._before()["steps"]
        return steps

    def _before(self) -> dict[str, Any]:
        """The time recorded so far, in all and by step; earlier versions did not know the steps."""
        path, nothing = self.folder / CLOCK, {"seconds": 0.0, "steps": {}}
        if not path.exists():
            return nothing
        try:
            values = read_json(path)
            by_step = values.get("steps", {}).items()
            steps = {str(step): float(seconds) for step, seconds in by_step}
            return {"seconds": float(values["seconds"]), "steps": steps}
        except (DamagedError, AttributeError, KeyError, TypeError, ValueError):
            self.tracker.say(f"{path} is damaged: earlier time on this run is not counted")
            path.unlink(missing_ok=True)
            return nothing


@dataclass
class TaskData:
    """The labelled data, read and audited."""

    task: Task
    splits: Splits
    findings: list[Finding]
    key: str
    metric: str  # picks the model and is reported first
    wide: Any = None  # `linear_part.FittedPart`, once it is fitted
    wide_of_text: Any = None  # the same with word vectors of a corpus, if that is better
    equal_shares: bool = False  # of the selected text, for several tasks
    sources: Sequence[Source] = ()  # of several tasks
    hidden: Sequence[Example] = ()  # of train, without their labels: see data.share

    @property
    def held_out(self) -> dict[str, list[Example]]:
        """The examples of dev and test, if any."""
        return {name: part for name, part in self.splits.named().items() if name != "train"}

    def texts(self, split: str) -> list[str]:
        """The whole texts of a split."""
        return [example.text for example in self.splits.named().get(split, [])]


@dataclass
class CorpusData:
    """The passages and which of them must not be used."""

    store: PassageSource
    contamination: Contamination
    findings: list[Finding]
    key: str
    artefact: str  # its name in the cache
    folders: tuple[Path, ...]  # of the passages and of what is left out
    text: CorpusText  # which files, and how they were read


@dataclass
class Tokenised:
    """Vocabulary and token shards."""

    vocabulary: Vocabulary
    external: Shards | None
    key: str
    folder: Path


@dataclass(frozen=True)
class Training:
    """A finished training of stage 1, counted from 1."""

    number: int
    folder: Path
    key: str


@dataclass(frozen=True)
class Trained:
    """A fully trained model with its inputs and its answers on dev and test."""

    run: Run
    task: TaskData
    corpus: CorpusData | None
    plan: Plan
    selected: Path | None
    parts: TrainingContext
    seeds: list[Seed]
    predictions: Predictions

    @cached_property
    def best(self) -> Seed:
        """The seed that is best on dev."""
        return best_seed(self.seeds)

    @property
    def best_place(self) -> int:
        """The position of the best seed among all."""
        return self.seeds.index(self.best)

    @property
    def trainings(self) -> int:
        """The number of trainings of stage 1."""
        return trainings_of(self.seeds)

    @property
    def has_network(self) -> bool:
        """Whether a network was trained; otherwise the linear model is all there is."""
        return self.parts.wide is None or any(seed.summary()["steps"] for seed in self.seeds)

    def best_answers(self, split: str) -> list[Answer]:
        """The answers of the best seed on a split."""
        return self.predictions[split][self.best_place]


def training_settings(train: Train, number: int) -> Train:
    """The settings of one training of stage 1, counted from 1: each has its own seed."""
    return dataclasses.replace(train, seed=train.seed + number - 1, seeds=1)


def sections(recipe: Recipe, *names: str) -> list[Any]:
    """Some sections as plain values, for a key; the number of seeds does not change a training."""
    return [without_seeds(getattr(recipe, name)) for name in names]


def without_seeds(section: Any) -> dict[str, Any]:
    """The values of a section except its number of trainings."""
    return {name: value for name, value in values_for_key(section).items() if name != "seeds"}
