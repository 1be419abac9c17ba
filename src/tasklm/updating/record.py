"""The updates of a run, one in each folder `updates/N` of it: which there are, and what became of
them. `updates/0` keeps the model of the first training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasklm.errors import DamagedError
from tasklm.evaluate.intervals import Difference
from tasklm.run_folder import UPDATES, number_of_update
from tasklm.storage.files import read_json, remove, write_record

BEGUN, RESULT = "begun.json", "update.json"  # what an update is made from; what came of it
FIRST = "0"  # the folder of the first model
FORMAT = 1


@dataclass(frozen=True)
class Begun:
    """What an update is made from."""

    data: str  # hash of the new files and of the settings
    parent: int  # the update whose model it begins from; 0: the first training
    model: str  # the content of that model


@dataclass(frozen=True)
class Group:
    """The scores of some test examples before and after an update."""

    name: str
    examples: int
    metric: str
    before: float
    after: float
    difference: Difference  # after - before


@dataclass(frozen=True)
class UpdateResult:
    """What came of an update; `print` shows the table."""

    number: int
    run: str
    metric: str
    split: str  # that was scored: test, or dev where there is no test
    published: bool  # whether it was put into model/
    dev_before: float
    dev_after: float
    groups: list[Group]
    new_classes: list[str]
    changed: int  # predictions of the split
    examples: dict[str, int]  # of each split, now
    seconds: float
    first_seconds: float  # of the first training, as its clock has it
    linear: bool  # whether the model is the linear one alone
    steps: int = 0  # of the network, in this update
    replayed: int = 0  # examples that the network read again …
    new_read: int = 0  # … and new ones that it read
    confidence: float = 0.95
    notes: list[str] = field(default_factory=list)
    format: int = FORMAT

    @property
    def share(self) -> float:
        """Its time as a share of that of the first training."""
        return self.seconds / self.first_seconds if self.first_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As in update.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> UpdateResult:
        """The result with these values."""
        groups = [
            Group(**{**one, "difference": Difference(**one["difference"])})
            for one in values["groups"]
        ]
        return cls(**{**values, "groups": groups})

    def __str__(self) -> str:
        from tasklm.updating.lines import lines_of

        return "\n".join(lines_of(self))


def folder_of(run: Path, number: int) -> Path:
    """The folder of an update."""
    return run / UPDATES / str(number)


def numbers_of(run: Path) -> list[int]:
    """The numbers of the updates that were begun, in order."""
    folders = (run / UPDATES).glob("*") if (run / UPDATES).is_dir() else ()
    return sorted(int(one.name) for one in folders if one.name.isdigit() and one.name != FIRST)


def begun_of(folder: Path) -> Begun | None:
    """What the update in a folder is made from; None if that is not known."""
    try:
        return Begun(**read_json(folder / BEGUN)) if (folder / BEGUN).exists() else None
    except (DamagedError, TypeError):
        return None


def result_of(folder: Path) -> UpdateResult | None:
    """What came of the update in a folder; None if it is not finished."""
    path = folder / RESULT
    return UpdateResult.from_dict(read_json(path)) if path.exists() else None


def lineage_of(run: Path) -> Iterator[int]:
    """The updates that the model in model/ comes from, the last first."""
    number = number_of_update(run)
    while number:
        yield number
        begun = begun_of(folder_of(run, number))
        number = 0 if begun is None else begun.parent


def place_for(run: Path, wanted: Begun) -> int:
    """The number of an update: of one that was begun with the same data from the same model, or the
    next one. One that was begun otherwise and never finished is deleted.
    """
    for number in lineage_of(run):
        begun = begun_of(folder_of(run, number))
        if begun is not None and begun.data == wanted.data:
            return number
    numbers = numbers_of(run)
    for number in numbers:
        if begun_of(folder_of(run, number)) == wanted:
            return number
    if numbers and result_of(folder_of(run, numbers[-1])) is None:
        remove(folder_of(run, numbers[-1]))
        return numbers[-1]
    return (numbers[-1] if numbers else 0) + 1


def begin(folder: Path, wanted: Begun) -> None:
    """Records what an update is made from, when it begins."""
    if begun_of(folder) is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_record(folder / BEGUN, asdict(wanted))
