"""What every kind of task shares: an example, and the three splits of a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tasklm.corpus.dedupe import text_key


@dataclass(frozen=True)
class Example:
    """One labelled (or, for prediction, unlabelled) example with its source."""

    texts: tuple[str, ...]  # one text, or the parts that belong together
    # a class name, a number, a list of tags …, as the kind says; None where there is no label
    label: Any
    file: str = ""
    line: int = 0
    # where the data is split into words (or characters): `texts` then is these, joined by spaces
    words: tuple[str, ...] = ()
    # of a choice; `texts` has the texts before them, and then each of them
    options: tuple[str, ...] = ()
    task: str = ""  # the name of its task, where a model has several

    @property
    def text(self) -> str:
        """The whole text, for queries and for audits."""
        return "\n".join(self.texts)

    @cached_property
    def key(self) -> int:
        """The hash of the text without differences of form, case and spacing."""
        return text_key(self.text)


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
    # what was detected or changed while reading, for the user
    notes: list[str] = field(default_factory=list)
    # of each file, the examples that were left out because another split has their texts
    leaks: Counter[str] = field(default_factory=Counter)
    added: int = 0  # examples at the end of train that the last further file gave

    def named(self) -> dict[str, list[Example]]:
        """The splits that have examples, by name."""
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in parts.items() if part}

    def sizes(self) -> str:
        """The numbers of examples of the splits, as text."""
        return ", ".join(f"{name} {len(part):,}" for name, part in self.named().items())


def left_out_by_file(before: Iterable[Example], after: Iterable[Example]) -> Counter[str]:
    """How many examples of each file are left out."""
    return Counter(one.file for one in before) - Counter(one.file for one in after)


def first_few(entries: Sequence[object], most: int) -> str:
    """The first entries, separated by commas, and … if there are more."""
    text = ", ".join(map(str, entries[:most]))
    if len(entries) > most:
        text += " …"
    return text
