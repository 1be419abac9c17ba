"""Forecasts of test scores: of a linear model, of tasklm in some minutes, and with twice the
labels.

Everything comes from train and dev. A test file matters only through its texts, which are removed
from train, and through its size: the score on a small test set varies more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from tasklm.budget.reading import reading_seconds
from tasklm.budget.scope import reads_text
from tasklm.corpus.dedupe import text_key
from tasklm.errors import DataError, RecipeError
from tasklm.forecasting.gains import MACHINES, MINUTES, Gain, Gains, form_of, recorded_gains
from tasklm.forecasting.learning_curve import Curve, measure_curve
from tasklm.forecasting.power_law import PowerLaw
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Recipe
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.base import TASKS, Floats, Metric, Task
from tasklm.tasks.examples import Splits
from tasklm.tasks.readers.splits import read_splits, resolved

SECONDS, MOST_SECONDS = 60.0, 120.0
REPLICATES = 200
CONFIDENCE = 0.9
SHIFT = 0.015  # assumed difference between two splits of a data set beyond chance
SURE = 3.0  # standard errors at which the scores of two splits surely differ
MOST_GAIN = 0.5  # of a linear model's errors


@dataclass(frozen=True)
class Expected:
    """An expected test score, in points, with a 90 % interval."""

    score: float
    low: float
    high: float

    @classmethod
    def of(cls, score: float, errors: Floats) -> Expected:
        """From a score and its equally likely errors; no score exceeds 100."""
        low, high = np.quantile(score + errors, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return cls(*(round(min(100.0, float(value)), 2) for value in (score, low, high)))


@dataclass(frozen=True)
class Trained:
    """What tasklm is expected to score in some minutes, with these labels and
    with twice as many.
    """

    machine: str  # cpu or gpu
    minutes: int
    labels: Expected
    twice: Expected
    reads_corpus: bool  # whether the minutes suffice for it


@dataclass(frozen=True)
class Forecast:
    """A forecast of scores on test, in points."""

    kind: str
    metric: str
    examples: int  # of train
    read: int  # of these, that the forecast was fitted to
    dev: int
    linear: Expected
    linear_twice: Expected
    trained: tuple[Trained, ...]
    machines: dict[str, str]  # what the recorded runs ran on
    form: str  # of the texts, by which recorded runs are compared
    runs: dict[str, int]  # recorded runs of each machine
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        from tasklm.forecasting.lines import table_text

        return table_text(self)


@dataclass(frozen=True)
class Outlook:
    """The linear model's expected score, a share of 1, with errors; also with twice the labels."""

    score: float
    errors: Floats
    twice: float
    twice_errors: Floats


def forecast(recipe: Recipe, seconds: float = SECONDS, gains: Gains | None = None) -> Forecast:
    """Forecasts the scores of a recipe's task from train and dev in about so many seconds."""
    if not 0 < seconds <= MOST_SECONDS:
        allowed = f"more than 0 and at most {MOST_SECONDS:.0f} seconds"
        raise RecipeError([f"--seconds must be {allowed}, not {seconds:g}"])
    if not recipe.data.corpus:
        remedy = "name it: --corpus FILES (recipe: data.corpus)"
        raise RecipeError([f"a forecast needs the corpus that the model would read; {remedy}"])
    reading = reading_seconds(recipe.data)
    data = resolved(recipe.data)
    splits = _splits_of(data)
    task = TASKS.get(data.kind).from_examples(splits.train, recipe.kind)
    metric = recipe.evaluate.metric
    metric = task.metrics[0] if metric == "auto" else task.metric(metric).name
    return forecast_splits(task, splits, metric, seconds, reading, gains)


def _splits_of(data: Data) -> Splits:
    """Train and dev without examples that also occur in test, of which only the texts are read."""
    splits = read_splits(dataclasses.replace(data, test="", leaks="drop"))
    if not data.test:
        return splits
    test, _ = TASKS.get(data.kind).read(home_path(data.test), data, labelled=False)
    keys = {text_key(example.text) for example in test}
    train = [example for example in splits.train if text_key(example.text) not in keys]
    dev = [example for example in splits.dev if text_key(example.text) not in keys]
    if not train or not dev:
        raise DataError(
            "every example of train or dev also occurs in test",
            file=data.test,
            remedy="Split the data again, without overlap.",
        )
    return Splits(train, dev, test)


def forecast_splits(
    task: Task,
    splits: Splits,
    metric: str,
    seconds: float = SECONDS,
    reading: float = 0.0,
    gains: Gains | None = None,
) -> Forecast:
    """Forecasts the scores of a task without using the labels of test.

    `reading` are the seconds that the corpus takes.
    """
    gains = gains or recorded_gains()
    curve = measure_curve(task, splits.train, splits.dev, metric, seconds)
    outlook = outlook_of(curve, len(splits.test) or len(splits.dev))
    form = form_of(splits.train)
    trained = []
    for machine in MACHINES:
        for minutes in MINUTES:
            reads = reads_text(minutes, reading)
            gain = gains.expected(machine, minutes, form) if reads else Gain(0.0, np.zeros(1))
            with_labels = added(outlook.score, outlook.errors, gain)
            with_twice = added(outlook.twice, outlook.twice_errors, gain)
            trained.append(Trained(machine, minutes, with_labels, with_twice, reads))
    return Forecast(
        task.kind,
        metric,
        curve.examples,
        curve.read,
        len(splits.dev),
        Expected.of(100 * outlook.score, 100 * outlook.errors),
        Expected.of(100 * outlook.twice, 100 * outlook.twice_errors),
        tuple(trained),
        gains.names,
        form,
        {machine: len(runs) for machine, runs in gains.runs.items()},
        round(curve.seconds, 1),
    )


def added(score: float, errors: Floats, gain: Gain) -> Expected:
    """A linear model's score plus a gain, with all combinations of their errors.

    No recorded run removed more than half of a linear model's errors, so no gain is larger.
    """
    most = MOST_GAIN * 100 * (1 - score)
    part = min(1.0, most / gain.points) if gain.points > 0 else 1.0
    together = (100 * errors[:, None] + part * gain.errors[None, :]).ravel()
    return Expected.of(100 * score + part * gain.points, together)


def outlook_of(curve: Curve, test: int, seed: int = 0) -> Outlook:
    """The expected score of a linear model on a test set of a size, now and with twice
    the labels.
    """
    law = curve.power_law(curve.replicates(REPLICATES, seed))
    generator = np.random.default_rng((seed, 1))
    score, errors = averaged(law.at(1.0), generator)
    rows = np.concatenate([*curve.points[-1].train, curve.whole])
    errors = errors + chance_errors(curve.metric, rows, test, len(errors), generator)
    gain, beyond = extrapolated(law, 2.0, generator)
    return Outlook(score, errors, min(1.0, score + gain), errors + beyond)


def extrapolated(law: PowerLaw, size: float, generator: Generator) -> tuple[float, Floats]:
    """What `size` times the labels add to the score, and equally likely errors of it.

    An extrapolated power law may be wrong by half of the gain it predicts.
    """
    gains = law.gain(1.0, size)
    scatter = gains[1:] - gains[1:].mean()
    return float(gains[0]), scatter + generator.normal(0.0, gains[0] / 2, len(scatter))


def averaged(levels: Floats, generator: Generator) -> tuple[float, Floats]:
    """One score from those of train and dev, or of dev alone, and equally likely errors of it.

    Levels are (1 + replicates, splits), the measured ones first and dev last. Each split is
    weighted by the certainty of its score: dev may be small, and the settings were chosen on it. If
    they differ by more than chance, train is a different kind of data, and only dev counts.
    """
    variances = levels[1:].var(0, ddof=1) + SHIFT**2
    weights = (1 / variances) / (1 / variances).sum()
    apart = float(np.ptp(levels[0]))
    if apart > SURE * np.sqrt(variances.sum()):
        weights = np.eye(len(variances))[-1]
    together = levels @ weights
    # splits of this task differ by this much; test may too
    shift = generator.normal(0.0, max(SHIFT, apart / 2), len(levels) - 1)
    return float(together[0]), together[1:] - together[1:].mean() + shift


def first_look(metric: Metric, splits: Sequence[Floats], test: int, seed: int = 0) -> Outlook:
    """The expected score of a linear model without further fitting.

    Given are its statistics, (examples, numbers), on train and dev, or on dev alone.
    """
    generator = np.random.default_rng((seed, 1))
    scores = []
    for own in splits:
        drawn = chance_scores(metric, own, len(own), REPLICATES, generator)
        scores.append([float(metric.value(own.sum(0))), *drawn])
    score, errors = averaged(np.array(scores).T, generator)
    errors = errors + chance_errors(metric, np.concatenate(splits), test, REPLICATES, generator)
    return Outlook(score, errors, score, errors)


def chance_errors(metric: Metric, rows: Floats, size: int, draws: int, random: Generator) -> Floats:
    """The chance deviations of the scores of test sets of a size from that of all rows."""
    return chance_scores(metric, rows, size, draws, random) - float(metric.value(rows.sum(0)))


def chance_scores(metric: Metric, rows: Floats, size: int, draws: int, random: Generator) -> Floats:
    """Scores of samples of `size` examples, drawn with replacement."""
    patterns, counts = np.unique(rows, axis=0, return_counts=True)
    drawn = random.multinomial(size, counts / counts.sum(), size=draws).astype(np.float64)
    return np.asarray(metric.value(drawn @ patterns), np.float64)
