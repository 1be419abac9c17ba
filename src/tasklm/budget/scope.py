"""How far a run can go in its minutes, from the time that is already spent: arithmetic alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tasklm.budget import rules
from tasklm.console.durations import duration

TEXT, TASK, LINEAR = "text", "task", "linear"  # text too, the task's data, the linear model alone


@dataclass(frozen=True)
class Scope:
    """What a run does, why no more, and how slow the machine was when that was decided."""

    reach: str = TEXT
    reason: str = ""  # one line for the user; empty if nothing is left out
    slowness: float = 1.0  # how many times longer work takes than on an idle machine

    def to_dict(self) -> dict[str, Any]:
        """The scope as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scope:
        """The scope that `to_dict` gave."""
        return cls(str(values["reach"]), str(values["reason"]), float(values["slowness"]))


@dataclass(frozen=True)
class Minutes:
    """A budget in seconds, of which some are spent, on a machine of a slowness."""

    seconds: float
    spent: float
    slowness: float = 1.0

    @property
    def left(self) -> float:
        """Seconds for text and training: scores and report come after them."""
        return self.seconds * (1 - rules.END_SHARE) - self._end - self.spent

    @property
    def _end(self) -> float:
        return rules.END_SECONDS * self.slowness

    def with_left(self, seconds: float) -> int:
        """The whole minutes, more than these, of which so many seconds would be left."""
        needed = (seconds + self._end + self.spent) / (1 - rules.END_SHARE)
        return max(math.ceil(needed / 60), math.floor(self.seconds / 60) + 1)


def scope_within(minutes: Minutes, text: float, linear: bool) -> Scope:
    """The scope that the time left pays for.

    `text`: seconds until the text is selected, on an idle machine; 0 without a corpus. `linear`:
    whether there is a linear model that may remain alone.
    """
    slowness = minutes.slowness
    training = rules.LEAST_TRAINING * slowness
    if linear and minutes.left < training:
        spent = f"{duration(minutes.spent)} of {duration(minutes.seconds)} are spent"
        more = f"to train one, give --minutes {minutes.with_left(training)}"
        return Scope(LINEAR, f"no network is trained: {spent}; {more}", slowness)
    reading = text * slowness
    if text and reading > rules.READING_SHARE * (minutes.left - training):
        enough = minutes.with_left(training + reading / rules.READING_SHARE)
        reason = "no text is used: too little time is left to read it and to train on it"
        return Scope(TASK, f"{reason}; to use it, give --minutes {enough}", slowness)
    return Scope(TEXT, "", slowness)


def reads_text(minutes: float, text: float) -> bool:
    """Whether so many minutes pay for text too; `text` as in `scope_within`."""
    return scope_within(Minutes(60 * minutes, 0.0), text, False).reach == TEXT
