"""One update under way: what it works on, and its artefacts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tasklm.artifacts import Artefacts
from tasklm.console.clock import Clock
from tasklm.evaluate.intervals import Resampling
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import CLOCK
from tasklm.storage.files import read_json, write_record
from tasklm.tracking import Tracker
from tasklm.updating.reading import Base, Grounds, Request


@dataclass
class Work:
    """An update under way."""

    base: Base
    request: Request
    recipe: Recipe
    grounds: Grounds
    number: int
    data: str  # hash of the new files and of the settings
    artefacts: Artefacts  # of its folder
    inputs: Inputs
    tracker: Tracker
    clock: Clock
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder of the update."""
        return self.artefacts.folder

    @property
    def resampling(self) -> Resampling:
        """The resampling that the recipe asks for."""
        return Resampling(self.recipe.evaluate.bootstrap, self.recipe.evaluate.confidence)

    def seconds(self) -> float:
        """The time spent so far, in this process and in earlier ones."""
        return seconds_in(self.folder) + self.clock.seconds()

    def keep_clock(self) -> None:
        """Records the time spent, for the next process."""
        write_record(self.folder / CLOCK, {"seconds": round(self.seconds(), 3), "steps": {}})
        self.clock.restart()

    def note(self, text: str) -> None:
        """Says what the user should know, and keeps it for the report."""
        self.notes.append(text)
        self.tracker.say(text, "data")


def seconds_in(folder: Path) -> float:
    """The seconds that the clock of a run or an update has; 0 if there is none."""
    path = folder / CLOCK
    return float(read_json(path)["seconds"]) if path.exists() else 0.0


@dataclass(frozen=True)
class Learned:
    """What an update has learnt: a model folder, and what both models answer."""

    model: Path
    answers: Path
    costs: dict[str, Any] = field(default_factory=dict)  # of the network: steps, replayed, new_read


class Learner(Protocol):
    """How a sort of model learns further examples."""

    def learn(self, work: Work) -> Learned:
        """Builds the artefacts `answers` and `model` of the update."""
        ...
