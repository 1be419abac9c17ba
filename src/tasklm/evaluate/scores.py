"""The scores of a run, scores.json: a row per model or baseline with intervals and costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tasklm.console.durations import duration
from tasklm.errors import RunError
from tasklm.evaluate.intervals import (
    USUAL,
    Difference,
    Predicted,
    Resampling,
    bootstrap_interval,
    paired_difference,
    per_seed,
    resampled_text,
    statistics_of,
)
from tasklm.recipe.toml import recipe_key
from tasklm.run_folder import RECIPE, SCORES
from tasklm.tasks.base import Floats, Metric, Task
from tasklm.tasks.members import Member
from tasklm.tasks.several import members_of

# ensemble: ours, all seeds together; soup: ours, with the mean weights of its seeds; teacher: a
# model that taught ours
Kind = Literal["ours", "ensemble", "soup", "ablation", "baseline", "teacher"]
METRIC_NAMES = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "weighted_f1": "weighted F1",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "entity_f1": "entity F1",
    "answer_f1": "F1",
    "exact_match": "exact match",
    "uas": "UAS",
    "las": "LAS",
}


@dataclass(frozen=True)
class Spread:
    """A score over seeds: mean, sample sd, each seed's value, and the bootstrap interval if any.

    `stage1` has the mean of each training of stage 1 over its fine-tunings, where there are
    several.
    """

    mean: float
    sd: float
    values: list[float]
    low: float | None = None
    high: float | None = None
    stage1: list[float] = field(default_factory=list)

    @property
    def stage1_sd(self) -> float | None:
        """The sample sd over the trainings of stage 1; None for a single one."""
        if len(self.stage1) < 2:
            return None
        return float(np.std(self.stage1, ddof=1))


@dataclass(frozen=True)
class SeedScore:
    """The scores of one model: fine-tuning `stage2` of training `stage1`, both counted from 1."""

    stage1: int
    stage2: int
    dev: float | None
    test: float | None


@dataclass(frozen=True)
class TaskScore:
    """The score of a row on one of several tasks; `against` is as in a row."""

    name: str
    metric: str
    dev: Spread | None
    test: Spread | None
    against: Difference | None = None


@dataclass(frozen=True)
class Row:
    """One line of the score table; `against` is the paired difference ours − this row on test."""

    name: str
    kind: Kind
    dev: Spread | None
    test: Spread | None
    metrics: dict[str, float] = field(default_factory=dict)
    flops_6nd: float = 0.0
    flops_exact: float = 0.0
    seconds: float = 0.0
    parameters: int = 0
    selected_passages: int = 0
    selected_tokens: int = 0
    against: Difference | None = None
    seeds: list[SeedScore] = field(default_factory=list)  # none of a baseline, and of an ensemble
    resampled: str = "test examples"  # what the interval on test is drawn from
    tasks: list[TaskScore] = field(default_factory=list)  # of several

    @property
    def trainings(self) -> int:
        """How many times stage 1 was trained, each time with another seed."""
        return max((seed.stage1 for seed in self.seeds), default=1)


@dataclass(frozen=True)
class Scores:
    """Everything in scores.json."""

    metric: str
    labels: list[str]
    rows: list[Row]
    data: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1  # fine-tunings of each training of stage 1
    verdict: str = ""
    confidence: float = 0.95
    recipe: str = ""  # hash of the recipe that produced them
    trainings: int = 1  # of stage 1
    linear: bool = False  # the model is the linear one: no network was better on dev
    averaged: bool = False  # the model has the mean weights of its seeds: none was better on dev
    # what more labels would bring, or under "skipped" why that is not known; {}: earlier versions
    growth: dict[str, Any] = field(default_factory=dict)
    staged: bool = True  # whether a training has two stages, as those of text have

    @property
    def ours(self) -> Row | None:
        """The row of the model itself, or None."""
        return next((row for row in self.rows if row.kind == "ours"), None)


def spread(values: Sequence[float] | Floats, interval: tuple[float, float] | None = None) -> Spread:
    """Mean and sample sd (0 for one) over seeds, which may be (trainings, fine-tunings)."""
    scores = np.asarray(values, np.float64)
    sd = float(np.std(scores, ddof=1)) if scores.size > 1 else 0.0
    low, high = interval or (None, None)
    stage1 = []
    if scores.ndim == 2 and len(scores) > 1:
        stage1 = scores.mean(1).tolist()
    return Spread(float(scores.mean()), sd, scores.ravel().tolist(), low, high, stage1)


@dataclass(frozen=True)
class Costs:
    """The cost of a row, as in `Row`."""

    flops_6nd: float = 0.0
    flops_exact: float = 0.0
    seconds: float = 0.0
    parameters: int = 0
    selected_passages: int = 0
    selected_tokens: int = 0


@dataclass(frozen=True)
class RowInputs:
    """The inputs of a row; `ours_test`, our model's predictions, are paired with `test`."""

    name: str
    kind: Kind
    task: Task
    metric: str
    dev: Predicted | None = None
    test: Predicted | None = None
    ours_test: Predicted | None = None
    resampling: Resampling = USUAL
    costs: Costs = Costs()


def make_row(inputs: RowInputs) -> Row:
    """The row of a model's predictions on dev and test."""
    task, metric = inputs.task, inputs.task.metric(inputs.metric)
    dev, test = _unless_empty(inputs.dev), _unless_empty(inputs.test)
    on_dev, on_test, against, resampled = None, None, None, "test examples"
    if dev is not None:
        on_dev = spread(per_seed(metric, statistics_of(metric, dev)))
    if test is not None:
        statistics = statistics_of(metric, test)
        interval = bootstrap_interval(metric, statistics, inputs.resampling)
        on_test = spread(per_seed(metric, statistics), interval)
        resampled = resampled_text(test.shape)
        if inputs.ours_test is not None and inputs.kind != "ours":
            ours = statistics_of(metric, inputs.ours_test)
            against = paired_difference(metric, ours, statistics, inputs.resampling)
    metrics: dict[str, float] = {}
    seeds: list[SeedScore] = []
    if (scored := test or dev) is not None:
        metrics = {name: _mean(task.metric(name), scored) for name in task.metrics}
        if inputs.kind in ("ours", "ablation"):
            seeds = _seed_scores(scored, on_dev, on_test)
    return Row(
        inputs.name,
        inputs.kind,
        on_dev,
        on_test,
        metrics,
        **dataclasses.asdict(inputs.costs),
        against=against,
        seeds=seeds,
        resampled=resampled,
        tasks=[_task_score(inputs, member) for member in members_of(task)],
    )


def _task_score(inputs: RowInputs, member: Member) -> TaskScore:
    """The score of a row's predictions on one of several tasks."""
    own = dataclasses.replace(
        inputs,
        task=member.task,
        metric=member.metric,
        dev=_of_task(inputs.dev, member.name),
        test=_of_task(inputs.test, member.name),
        ours_test=_of_task(inputs.ours_test, member.name),
    )
    row = make_row(own)
    return TaskScore(member.name, member.metric, row.dev, row.test, row.against)


def _of_task(predicted: Predicted | None, name: str) -> Predicted | None:
    return None if predicted is None else predicted_of(predicted, name)


def predicted_of(predicted: Predicted, name: str) -> Predicted | None:
    """The labels of one task among those of several; None if it has none."""
    places = [place for place, label in enumerate(predicted.gold) if label[0] == name]
    seeds = [[labels[place][1] for place in places] for labels in predicted.seeds]
    gold = [predicted.gold[place][1] for place in places]
    return Predicted(gold, seeds, predicted.trainings) if places else None


def _unless_empty(predicted: Predicted | None) -> Predicted | None:
    """The predictions of a split; None if it has no examples."""
    return predicted if predicted is not None and len(predicted.gold) else None


def _mean(metric: Metric, predicted: Predicted) -> float:
    return float(per_seed(metric, statistics_of(metric, predicted)).mean())


def _seed_scores(scored: Predicted, dev: Spread | None, test: Spread | None) -> list[SeedScore]:
    """The scores of each seed, those of the first training of stage 1 first."""
    none: list[float | None] = [None] * len(scored.seeds)
    on_dev = dev.values if dev is not None else none
    on_test = test.values if test is not None else none
    tunings = scored.shape[1]
    seeds = []
    for number, (dev_score, test_score) in enumerate(zip(on_dev, on_test, strict=True)):
        training, tuning = divmod(number, tunings)
        seeds.append(SeedScore(training + 1, tuning + 1, dev_score, test_score))
    return seeds


def table(scores: Scores, costs: bool = False) -> Table:
    """The score table for the terminal; with `costs`, FLOPs and time too."""
    on_test = any(row.test is not None for row in scores.rows)
    columns = {"model": [row.name for row in scores.rows]}
    columns["dev"] = [spread_text(row.dev) for row in scores.rows]
    title, caption = f"{metric_name(scores.metric)} × 100, {over_seeds(scores)}", None
    if on_test:
        columns["test"] = [spread_text(row.test) for row in scores.rows]
        title += f", [{scores.confidence:.0%} interval]"
        caption = Text(interval_text(scores))
    if costs:
        columns["FLOPs"] = [flops_text(row.flops_exact or row.flops_6nd) for row in scores.rows]
        columns["time"] = [time_text(row.seconds) for row in scores.rows]
    drawn = Table(
        title=Text(title),
        title_style="bold",
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        min_width=len(title),  # where the terminal is as wide: a title wraps at the table's width
    )
    drawn.add_column("model", overflow="fold")
    for name in list(columns)[1:]:
        drawn.add_column(name, justify="right", no_wrap=True)
    for row, cells in zip(scores.rows, zip(*columns.values(), strict=True), strict=True):
        style = "bold" if row.kind == "ours" else None
        drawn.add_row(*map(Text, cells), style=style)  # Text, so that [ ] is not read as markup
    return drawn


def over_seeds(scores: Scores) -> str:
    """What the numbers average: 'mean ± sd over 9 seeds (3 of stage 1 × 3 of stage 2)'."""
    seeds = scores.trainings * scores.seeds
    if seeds == 1:
        return "one seed"
    if not scores.staged:
        return f"mean ± sd over {seeds} seeds"
    if scores.trainings == 1:
        return f"mean ± sd over {seeds} seeds of stage 2"
    stages = f"{scores.trainings} of stage 1 × {scores.seeds} of stage 2"
    return f"mean ± sd over {seeds} seeds ({stages})"


def interval_text(scores: Scores) -> str:
    """What the intervals of the table are resampled from, for a line below it."""
    scored = [row for row in scores.rows if row.test is not None]
    drawn = list(dict.fromkeys(row.resampled for row in scored if row.kind in ("ours", "ablation")))
    others = list(dict.fromkeys(row.resampled for row in scored if row.resampled not in drawn))
    rest = f"; other rows: {' or '.join(others)}" if drawn and others else ""
    return f"resampled for the intervals: {' or '.join(drawn or others)}{rest}"


def metric_name(metric: str) -> str:
    """The usual spelling of a metric."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def spread_text(value: Spread | None) -> str:
    """A score for a table: '71.2 ± 0.8 [68.0, 74.1]', or a dash."""
    if value is None:
        return "–"
    text = f"{100 * value.mean:.1f}"
    if len(value.values) > 1:
        text += f" ± {100 * value.sd:.1f}"
    if value.low is not None and value.high is not None:
        text += f" [{100 * value.low:.1f}, {100 * value.high:.1f}]"
    return text


def score_text(value: Spread, confidence: float | None = None) -> str:
    """The mean, and for a given confidence its interval, for use in a sentence."""
    mean = f"{100 * value.mean:.1f}"
    if confidence is None or value.low is None or value.high is None:
        return mean
    interval = f"{100 * value.low:.1f} to {100 * value.high:.1f}"
    return f"{mean} ({confidence:.0%} interval {interval})"


def flops_text(flops: float) -> str:
    """A number of FLOPs: '2.7e18', or a dash for nothing."""
    if flops > 0 and math.isfinite(flops):
        return f"{flops:.1e}".replace("e+", "e")
    return "–"


def time_text(seconds: float) -> str:
    """A readable duration, or a dash for nothing."""
    return duration(seconds) if seconds > 0 else "–"


def to_dict(scores: Scores) -> dict[str, Any]:
    """The scores as plain values, ready for JSON."""
    return dataclasses.asdict(scores)


def from_dict(values: Mapping[str, Any]) -> Scores:
    """The scores that `to_dict` wrote."""
    try:
        return Scores(**{**values, "rows": [_read_row(row) for row in values["rows"]]})
    except (KeyError, TypeError) as error:
        raise RunError(
            f"{SCORES} is from another version or damaged ({error}). Run `tasklm evaluate` again."
        ) from None


def of_this_recipe(scores: Scores, run: Path) -> bool:
    """Whether scores belong to the recipe that the run folder has now."""
    # "": written by a version that did not record it
    return scores.recipe in ("", recipe_key(run / RECIPE))


def _read_row(values: Mapping[str, Any]) -> Row:
    fields = dict(values)
    fields["seeds"] = [SeedScore(**seed) for seed in values.get("seeds", ())]
    fields["tasks"] = [TaskScore(**_read_spreads(one)) for one in values.get("tasks", ())]
    return Row(**_read_spreads(fields))


def _read_spreads(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with the scores of both splits, and the difference from ours, as objects."""
    fields = dict(values)
    for split in ("dev", "test"):
        if values[split] is not None:
            fields[split] = Spread(**values[split])
    if values.get("against") is not None:
        fields["against"] = Difference(**values["against"])
    return fields
