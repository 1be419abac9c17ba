"""The expected gain of tasklm over a linear model in some minutes, from recorded runs.

gains.json holds the recorded gains on test, in points; `python benchmarks/forecast.py --refresh`
writes it from the tables of the documentation. A forecast uses the median of tasks whose texts have
the same form. It is shrunk towards the median of all tasks, which counts as much as two of them,
because each form has few tasks.

Other budgets are extrapolated by a trend. On a CPU, gains of 1 and 5 minutes give points
per doubling of the minutes; on a GPU, runs of two sizes give the power of the FLOPs that gains
grow with.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.corpus.words import count_words
from tasklm.storage.files import read_json
from tasklm.tasks.base import Floats
from tasklm.tasks.examples import Example

MACHINES = ("cpu", "gpu")
MINUTES = (5, 20, 60)
RECORDED = {"cpu": 5, "gpu": 20}  # minutes that recorded gains apply to
LONG = 80  # words of a text: with more it is a document, else a sentence
COUNTS_AS = 2  # tasks of its own form that the median of all tasks weighs as much as


@dataclass(frozen=True)
class Recorded:
    """The gain of one run over the linear model, in points; `before`: with a smaller budget."""

    task: str
    form: str
    gain: float
    before: float | None = None


@dataclass(frozen=True)
class Gain:
    """An expected gain, in points, and equally likely errors of it."""

    points: float
    errors: Floats


@dataclass(frozen=True)
class Gains:
    """Recorded gains by machine, and how they grow with the budget."""

    runs: dict[str, tuple[Recorded, ...]]
    names: dict[str, str]
    powers: dict[str, float]  # of the FLOPs, that gains on a GPU grow with, by task
    doublings: float  # of the minutes between the two recorded budgets of a CPU

    def without(self, task: str) -> Gains:
        """All but those of one task."""
        runs = {}
        for machine, own in self.runs.items():
            runs[machine] = tuple(run for run in own if run.task != task)
        powers = {name: power for name, power in self.powers.items() if name != task}
        return Gains(runs, self.names, powers or self.powers, self.doublings)

    def expected(self, machine: str, minutes: float, form: str) -> Gain:
        """The gain for texts of a form; its errors are wider if a trend is extrapolated."""
        runs = self.runs[machine]
        gains = [run.gain for run in runs]
        centre = _centre(runs, gains, form)
        errors = np.array([run.gain - _centre(runs, gains, run.form) for run in runs])
        times = minutes / RECORDED[machine]
        if machine == "gpu":
            factor = times ** float(np.mean(list(self.powers.values())))
            return Gain(centre * factor, errors * factor)
        doublings = math.log2(times)
        trends = [(run.gain - (run.before or 0.0)) / self.doublings for run in runs]
        trend = max(0.0, _centre(runs, trends, form))
        usual = [_centre(runs, trends, run.form) for run in runs]
        slopes = np.array(trends) - np.array(usual)
        # errors of the trend are combined with all those of the recorded budget
        spread = (errors[:, None] + doublings * slopes[None, :]).ravel() if doublings else errors
        drawn_out = centre + doublings * trend
        if doublings <= 0:
            return Gain(max(min(0.0, centre), drawn_out), spread)
        most = self.expected("gpu", RECORDED["cpu"], form).points  # two cores do not overtake a GPU
        return Gain(max(centre, min(drawn_out, most)), spread)


def _centre(runs: Sequence[Recorded], values: Sequence[float], form: str) -> float:
    """The median of the values of a form, and of that of all, which counts COUNTS_AS times."""
    own = [value for value, run in zip(values, runs, strict=True) if run.form == form]
    return float(np.median([*own, *[float(np.median(values))] * COUNTS_AS]))


def form_of(examples: Sequence[Example]) -> str:
    """The form of a task's texts: words of sentences, options, pairs, answers in texts, documents
    or sentences.
    """
    first = examples[0]
    if first.words:
        return "words"
    if first.options:
        return "options"
    if len(first.texts) > 1:
        return "answers" if isinstance(first.label, list) else "pairs"
    middle = float(np.median([count_words(example.text) for example in examples]))
    return "documents" if middle > LONG else "sentences"


@functools.cache
def recorded_gains() -> Gains:
    """The gains that come with the package."""
    return gains_from(read_json(Path(__file__).with_name("gains.json")))


def gains_from(values: dict[str, Any]) -> Gains:
    """The gains that a JSON object describes."""
    runs = {}
    for machine in MACHINES:
        runs[machine] = tuple(Recorded(**run) for run in values[machine]["runs"])
    names = {machine: str(values[machine]["name"]) for machine in MACHINES}
    return Gains(runs, names, values["gpu"]["powers"], float(values["cpu"]["doublings"]))
