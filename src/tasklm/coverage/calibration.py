"""What dev said of a model, kept beside it, and the promise that follows for any coverage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.coverage.known_words import KnownWords
from tasklm.coverage.quantiles import ROUNDING, Sorted, alpha_of, fewest, merged, thresholds
from tasklm.errors import RecipeError, RunError
from tasklm.models.damage import damage_is_clear
from tasklm.storage.files import digest, read_json, write_record
from tasklm.storage.safe_reading import MOST_JSON, is_there
from tasklm.tasks.answer_sets import POOLED, AnswerSets
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.saved import text_in

FILE = "coverage.json"  # in the folder of a model
FORMAT = 1
NEW_WORDS = 0.2  # of α, at most: for texts that are unlike dev; labels have what is left
AGAIN = "Run tasklm fit again with the same data and the same --out: it only adds what is missing"
NO_LABEL = "none of these: no {one} is likely enough"
UNLIKE = "the text is unlike those of dev: {share:.0%} of its words are new"


@dataclass(frozen=True)
class Seen:
    """The dev examples of a class: the strangeness of the right answer and the share of new words
    of each, in the order of the former.
    """

    strangeness: Sorted
    new_words: NDArray[np.float64]

    def missing(self, fewest_new: float) -> Sorted:
        """The strangeness, infinite for texts whose share of new words is at least this."""
        return np.sort(np.where(self.new_words >= fewest_new, math.inf, self.strangeness))


@dataclass(frozen=True)
class Calibration:
    """What dev said of a model, by class, and the words of train."""

    seen: Mapping[str, Seen]
    words: KnownWords

    @classmethod
    def of(
        cls,
        sets: AnswerSets,
        train: Sequence[Example],
        dev: Sequence[Example],
        answers: Sequence[Answer],
    ) -> Calibration:
        """That of a model's answers on dev."""
        words = KnownWords.of(example.text for example in train)
        pairs: dict[str, list[tuple[float, float]]] = {}
        for example, answer in zip(dev, answers, strict=True):
            strangeness = sets.strangeness(answer, example.label)
            share = words.share_of_new(example.text)
            pairs.setdefault(sets.group(example.label), []).append((strangeness, share))
        seen = {}
        for name in sorted(pairs):
            columns = np.array(sorted(pairs[name]), np.float64)
            seen[name] = Seen(columns[:, 0], columns[:, 1])
        return cls(seen, words)

    @property
    def count(self) -> int:
        """The number of dev examples."""
        return sum(len(one.strangeness) for one in self.seen.values())

    def promise(self, coverage: float) -> Promise:
        """The thresholds for a coverage; raises RunError if dev is too small for it.

        A dev example whose text is unlike the others is missed whatever its label, as a new one
        will be. So the promise is of both together: what they miss, the thresholds make up for.
        """
        alpha = alpha_of(checked(coverage))
        if self.count < fewest(alpha):
            raise RunError(
                f"a coverage of {_percent(coverage)} takes at least {fewest(alpha):,} dev "
                f"examples, and the model was calibrated on {self.count:,}. Ask for at most "
                f"{_percent(_most(self.count))}, or train with a larger dev set (--dev)."
            )
        newest, fewest_new = self._newest(alpha)
        scores = {name: one.missing(fewest_new) for name, one in self.seen.items()}
        return Promise(coverage, thresholds(scores, alpha), newest, self.words)

    def _newest(self, alpha: float) -> tuple[float, float]:
        """The share of new words that a new text must exceed to be unlike dev, and the smallest
        share with which a text of dev is unlike the others.

        Of a new text and those of dev at most a fifth of α shall be: so a new one must have more
        new words than the k-th of dev. That one is itself among the k with most, unless others
        have as many.
        """
        most = math.floor(NEW_WORDS * alpha * (self.count + 1) + ROUNDING)
        if not most:
            return math.inf, math.inf
        shares = merged(one.new_words for one in self.seen.values())
        newest = float(shares[-most])
        if (shares >= newest).sum() <= most:
            return newest, newest
        return newest, float(np.nextafter(newest, math.inf))

    def to_dict(self) -> dict[str, Any]:
        """As in the file."""
        seen = {
            name: {
                "strangeness": _written(one.strangeness),
                "new_words": _written(one.new_words),
            }
            for name, one in self.seen.items()
        }
        return {"seen": seen, "words": self.words.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """What `to_dict` wrote; raises ValueError, among others, for anything else."""
        seen = {}
        for name, own in dict(values["seen"]).items():
            strangeness, shares = _read(own["strangeness"]), _read(own["new_words"])
            if not len(shares) or len(strangeness) != len(shares):
                raise ValueError("its scores and its texts are not of the same examples")
            if (strangeness[1:] < strangeness[:-1]).any():
                raise ValueError("its scores are not sorted")
            seen[str(name)] = Seen(strangeness, shares)
        if not seen:
            raise ValueError("it has no dev examples")
        return cls(seen, KnownWords.from_dict(values["words"]))


@dataclass(frozen=True)
class Promise:
    """What makes sets that hold the right answer in a share `coverage` of all cases."""

    coverage: float
    thresholds: Mapping[str, float]  # by class; POOLED for any other
    newest: float  # the largest share of new words that is not too large
    words: KnownWords

    def limit(self, group: str) -> float:
        """The threshold of a class, or of any other."""
        return self.thresholds.get(group, self.thresholds[POOLED])

    def is_unlike(self, text: str) -> bool:
        """Whether a text has too many new words."""
        return self.words.share_of_new(text) > self.newest

    def row(self, sets: AnswerSets, text: str, answer: Answer) -> dict[str, Any]:
        """The set for a text, or {"unknown": why there is none}."""
        if self.is_unlike(text):
            return {"unknown": UNLIKE.format(share=self.words.share_of_new(text))}
        chosen = sets.within(answer, self.thresholds)
        if not sets.size(chosen):
            return {"unknown": NO_LABEL.format(one=sets.one)}
        return chosen


def checked(coverage: float) -> float:
    """The coverage; raises RecipeError if it is no share between 0 and 1."""
    if not 0 < coverage < 1:
        problem = f"coverage {coverage:g} is not between 0 and 1"
        raise RecipeError([f"{problem}: 0.95 asks for sets that are right in 95 of 100 cases"])
    return coverage


def sets_for(task: Task) -> AnswerSets:
    """What the sets of a task are made of; raises RecipeError, with the way out, if it has none."""
    if task.sets is None:
        problem = f"coverage: tasks of kind {task.kind} have no sets with a promise"
        raise RecipeError([f"{problem}: {task.setless}"])
    return task.sets


def write_calibrations(folder: Path, model: str, parts: Mapping[str, Calibration]) -> None:
    """Writes coverage.json, with a checksum of its values; `model`: what it was calibrated on."""
    tasks = {name: one.to_dict() for name, one in parts.items()}
    write_record(folder / FILE, {"format": FORMAT, "model": model, "tasks": tasks})


def read_calibration(folder: Path, name: str = "", model: str = "") -> Calibration:
    """The calibration of a model's task, or of one of several by its name.

    Raises RunError with the way out if there is none, it is of another model, or damaged.
    """
    every = read_calibrations(folder, model)
    if name not in every:
        raise RunError(f"{folder / FILE} has no calibration for this task. {AGAIN}.")
    return every[name]


def read_calibrations(folder: Path, model: str = "") -> dict[str, Calibration]:
    """The calibrations of all tasks of a model, by their names."""
    path = folder / FILE
    if not is_there(path):
        raise RunError(
            f"{folder} has not been calibrated ({FILE} is missing): an earlier version made it, or "
            f"its run is not finished. {AGAIN}, and export again where this is an export."
        )
    with damage_is_clear(folder):
        values = read_json(path, MOST_JSON)
        if values["format"] != FORMAT:
            problem = f"{path} has format {values['format']!r}, but this version reads {FORMAT}"
            raise RunError(f"{problem}. {AGAIN}.")
        if model and text_in(values, "model") != model:
            raise RunError(f"{path} was calibrated on another model. {AGAIN}.")
        tasks = dict(values["tasks"]).items()
        return {str(name): Calibration.from_dict(one) for name, one in tasks}


def content_of_model(config: Mapping[str, Any]) -> str:
    """What identifies a model: the checksums of its files."""
    return digest(config.get("files"))


def _written(numbers: NDArray[np.float64]) -> str:
    """Numbers in one line, exactly."""
    return " ".join(map(repr, numbers.tolist()))


def _read(line: Any) -> NDArray[np.float64]:
    """Finite numbers that are not negative; raises ValueError for anything else."""
    values = np.array([float(one) for one in text_in({"line": line}, "line").split()], np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("its scores are not numbers from 0")
    return values


def _most(count: int) -> float:
    """The largest coverage, in whole percent, that so many examples allow."""
    return math.floor(100 * count / (count + 1)) / 100


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"
