"""What a promise came to on labelled examples that took no part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasklm.coverage.calibration import Calibration
from tasklm.coverage.quantiles import alpha_of, expected_interval, fewest, measured_interval
from tasklm.run_folder import MODEL
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import read_json
from tasklm.tasks.answer_sets import AnswerSets
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example

PROMISED = (0.90, 0.95, 0.99)  # what reports state
ARTEFACT_NAME, MEASURED = "coverage", "measured.json"  # in a run
FEWEST_OF_CLASS = 20  # test examples of a class that is listed


@dataclass(frozen=True)
class Measured:
    """Counts of one promise on a split; `needs`: dev examples where there are too few."""

    promised: float
    dev: int
    needs: int
    count: int = 0
    right: int = 0  # sets that hold the right answer; an unknown text has none
    size: float = 0.0  # mean of the sets that there are
    single: int = 0  # sets with one candidate
    unlike: int = 0  # texts that are unlike dev
    empty: int = 0
    by_class: dict[str, tuple[int, int]] = field(default_factory=dict)  # right, count
    interval: tuple[float, float] = (0.0, 0.0)  # of the measured coverage: binomial
    expected: tuple[float, float] = (0.0, 0.0)  # where it lies in 95 of 100 cases

    @property
    def coverage(self) -> float:
        """The measured coverage."""
        return self.right / self.count if self.count else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As in measured.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Measured:
        """What `to_dict` wrote."""
        pairs = {name: (right, count) for name, (right, count) in values["by_class"].items()}
        interval, expected = tuple(values["interval"]), tuple(values["expected"])
        return cls(**{**values, "by_class": pairs, "interval": interval, "expected": expected})


def measured(
    sets: AnswerSets,
    calibration: Calibration,
    promised: float,
    examples: Sequence[Example],
    answers: Sequence[Answer],
) -> Measured:
    """What a promise comes to on examples and their answers."""
    alpha = alpha_of(promised)
    if calibration.count < fewest(alpha) or not examples:
        return Measured(promised, calibration.count, fewest(alpha))
    promise = calibration.promise(promised)
    right, single, unlike, empty = 0, 0, 0, 0
    sizes: list[float] = []
    classes: Counter[tuple[str, bool]] = Counter()
    for example, answer in zip(examples, answers, strict=True):
        row = promise.row(sets, example.text, answer)
        strange = promise.is_unlike(example.text)
        group = sets.group(example.label)
        limit = promise.limit(group)
        hit = not strange and sets.strangeness(answer, example.label) <= limit
        right += hit
        unlike += strange
        empty += "unknown" in row and not strange
        if "unknown" not in row:
            sizes.append(sets.size(row))
            single += sizes[-1] == 1
        if sets.grouped:
            classes[group, hit] += 1
    count = len(examples)
    spread, law = (
        measured_interval(right, count),
        expected_interval(calibration.count, alpha, count),
    )
    return Measured(
        promised,
        calibration.count,
        fewest(alpha),
        count=count,
        right=right,
        size=sum(sizes) / len(sizes) if sizes else 0.0,
        single=single,
        unlike=unlike,
        empty=empty,
        by_class={
            name: (classes[name, True], classes[name, True] + classes[name, False])
            for name in sorted({name for name, _ in classes})
        },
        interval=(spread.low, spread.high),
        expected=(law.low, law.high),
    )


def read_measured(run: Path) -> dict[str, list[Measured]]:
    """What the model of a run promises and what came of it, by the names of its tasks."""
    path = run / ARTEFACT_NAME / MODEL / MEASURED
    if not path.exists():
        return {}
    with damage_is_clear(path):
        values = read_json(path)
        return {name: [Measured.from_dict(one) for one in own] for name, own in values.items()}
