"""What every kind of task shares: an example, and the three splits of a data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """One labelled (or, for prediction, unlabelled) example with the place it was read from."""

    texts: tuple[str, ...]  # one text, or the parts that belong together
    # a class name, a number, a list of tags …, as the kind says; None where there is no label
    label: Any
    file: str = ""
    line: int = 0
    words: tuple[
        str, ...
        # where the data is split into words (or characters): `texts` then is these, joined by
        # spaces
    ] = ()
    options: tuple[
        str, ...
    ] = ()  # of a choice; `texts` has what stands before them, and then each of them

    @property
    def text(self) -> str:
        """The whole text, for queries and for audits."""
        return "\n".join(self.texts)


@dataclass(frozen=True)
class Finding:
    """One result of the audit."""

    level: str  # "error", "warning" or "ok"
    check: str
    message: str
    examples: tuple[str, ...] = ()
    brief: str = ""  # a warning in one short line with its remedy; empty where the message is short


@dataclass
class Splits:
    """The labelled data of a run; `test` is empty when none was given."""

    train: list[Example]
    dev: list[Example]
    test: list[Example] = field(default_factory=list)
    notes: list[str] = field(
        default_factory=list
    )  # what was detected or changed while reading, for the person

    def named(self) -> dict[str, list[Example]]:
        """The splits that have examples, by name."""
        return {
            name: part
            for name, part in (("train", self.train), ("dev", self.dev), ("test", self.test))
            if part
        }

    def sizes(self) -> str:
        """How many examples the splits have, in words."""
        return ", ".join(f"{name} {len(part):,}" for name, part in self.named().items())
