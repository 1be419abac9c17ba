"""What a comparison has found: a result for each contestant, and all of them together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasklm.errors import RunError
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Spread

FORMAT = 1


@dataclass(frozen=True)
class Latency:
    """How long a model takes on one machine, measured in turns with the others."""

    median: float  # seconds for one text by itself
    slow: float  # of 20 texts, 19 take no longer
    per_second: float  # texts, in batches


@dataclass(frozen=True)
class Cost:
    """What a contestant took to train, and what it needs."""

    seconds: float = 0.0  # of the training, from the files to the model; 0: not known
    memory: float = 0.0  # bytes of the process that trained, at most; 0: not known
    size: int = 0  # bytes of the files that predicting needs
    flops: float = 0.0  # of the training; 0: not counted
    parameters: int = 0  # 0: not counted
    reads_text: bool = False
    outside_weights: bool = False
    device: str = ""  # that it was trained on


@dataclass(frozen=True)
class Against:
    """The score of another contestant less that of this one, on the same examples."""

    difference: Difference
    p: float  # corrected for the number of comparisons (Holm)

    def p_text(self, equal: str = "") -> str:
        """p for a table; '≤' where it is the smallest that the resamples can show."""
        if self.difference.at_floor:
            return f"≤ {self.p:.2g}"
        return f"{equal}{self.p:.2g}"


@dataclass(frozen=True)
class Result:
    """One contestant: its scores and costs, or why it has none."""

    title: str
    contestant: str
    problem: str = ""
    dev: Spread | None = None
    test: Spread | None = None
    metrics: dict[str, float] = field(default_factory=dict)  # others, on the same split
    best: Against | None = None  # the best contestant less this one; None: it is the best
    ours: Against | None = None  # tasklm less this one; None: it is tasklm, or there is none
    latency: Latency | None = None
    cost: Cost = Cost()
    setting: str = ""  # what dev chose
    note: str = ""

    @property
    def score(self) -> Spread | None:
        """The score on test, or on dev where there is no test set."""
        return self.test or self.dev

    @property
    def mean(self) -> float:
        """The score as a number; below all others where there is none."""
        if self.score is None:
            return -math.inf
        return self.score.mean


@dataclass(frozen=True)
class Machine:
    """Where latency was measured."""

    threads: int
    device: str
    texts: int  # that were timed one by one
    batch: int  # texts of a batch
    unsteady: float  # largest change of a median between the halves of the measurement, as a share
    processor: str = ""


@dataclass(frozen=True)
class Comparison:
    """All contestants on one task; `print` shows the table and what follows from it."""

    metric: str
    split: str  # that decides: test, or dev
    confidence: float
    data: dict[str, int]  # examples of each split
    minutes: float
    results: list[Result]
    machine: Machine | None
    warnings: list[str] = field(default_factory=list)  # of the audit
    folder: str = ""
    picks: dict[str, str] = field(default_factory=dict)  # what counts → who is it
    advice: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` wrote."""
        try:
            given = {name: value for name, value in values.items() if name != "format"}
            given["results"] = [_result(one) for one in given["results"]]
            if given["machine"] is not None:
                given["machine"] = Machine(**given["machine"])
            return cls(**given)
        except (KeyError, TypeError) as error:
            problem = f"the comparison is from another version or damaged ({error})"
            raise RunError(f"{problem}. Run tasklm compare again.") from None

    @property
    def scored(self) -> list[Result]:
        """The contestants that have a score, best first."""
        scored = [result for result in self.results if result.score is not None]
        return sorted(scored, key=lambda result: -result.mean)

    def result(self, title: str) -> Result:
        """The result of a contestant."""
        return next(result for result in self.results if result.title == title)

    def __str__(self) -> str:
        from tasklm.comparing.table import comparison_text

        return comparison_text(self)


def _result(values: Mapping[str, Any]) -> Result:
    given = dict(values)
    for split in ("dev", "test"):
        given[split] = _made(Spread, given[split])
    for other in ("best", "ours"):
        against = given[other]
        if against is not None:
            given[other] = Against(Difference(**against["difference"]), against["p"])
    given["latency"] = _made(Latency, given["latency"])
    given["cost"] = Cost(**given["cost"])
    return Result(**given)


def _made(kind: Any, values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return kind(**values)


def titles(results: Sequence[Result]) -> str:
    """The names of some contestants in a sentence."""
    names = [result.title for result in results]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
