"""The scores of a run: one row per model or baseline, over seeds, with intervals, costs and a
verdict; scores.json.
"""

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
from tasklm.tasks.base import Floats, Metric, Task

Kind = Literal["ours", "ensemble", "ablation", "baseline"]  # ensemble: ours, all seeds together
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
    """A score over seeds: mean, sample sd, each seed's value, and the bootstrap interval where
    there is one.

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
        """The sample sd over the trainings of stage 1; None where there is one."""
        return float(np.std(self.stage1, ddof=1)) if len(self.stage1) > 1 else None


@dataclass(frozen=True)
class SeedScore:
    """The scores of one model: fine-tuning `stage2` of the training `stage1`,
    both counted from 1.
    """

    stage1: int
    stage2: int
    dev: float | None
    test: float | None


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
    recipe: str = ""  # hash of the recipe that they are of
    trainings: int = 1  # of stage 1
    # whether the model is the linear model of words alone, since training brought nothing better on
    # dev
    linear: bool = False

    @property
    def ours(self) -> Row | None:
        """The row of the model itself, or None."""
        return next((row for row in self.rows if row.kind == "ours"), None)


def spread(values: Sequence[float] | Floats, interval: tuple[float, float] | None = None) -> Spread:
    """Mean and sample sd (0 for one) of the scores of seeds; (trainings, fine-tunings) also has
    means of trainings.
    """
    scores = np.asarray(values, np.float64)
    sd = float(np.std(scores, ddof=1)) if scores.size > 1 else 0.0
    low, high = interval if interval is not None else (None, None)
    stage1 = scores.mean(1).tolist() if scores.ndim == 2 and len(scores) > 1 else []
    return Spread(float(scores.mean()), sd, scores.ravel().tolist(), low, high, stage1)


def make_row(
    name: str,
    kind: Kind,
    task: Task,
    metric: str,
    *,
    dev: Predicted | None = None,
    test: Predicted | None = None,
    ours_test: Predicted | None = None,
    resampling: Resampling = USUAL,
    flops_6nd: float = 0.0,
    flops_exact: float = 0.0,
    seconds: float = 0.0,
    parameters: int = 0,
    selected_passages: int = 0,
    selected_tokens: int = 0,
) -> Row:
    """The row of the predictions on dev and test; `ours_test`, those of our model, are paired with
    them.
    """
    chosen = task.metric(metric)
    dev, test = (part if part is not None and len(part.gold) else None for part in (dev, test))
    on_dev, on_test, against = None, None, None
    if dev is not None:
        on_dev = spread(per_seed(chosen, statistics_of(chosen, dev)))
    if test is not None:
        statistics = statistics_of(chosen, test)
        on_test = spread(
            per_seed(chosen, statistics), bootstrap_interval(chosen, statistics, resampling)
        )
        if ours_test is not None and kind != "ours":
            against = paired_difference(
                chosen, statistics_of(chosen, ours_test), statistics, resampling
            )
    scored = test or dev
    return Row(
        name,
        kind,
        on_dev,
        on_test,
        {}
        if scored is None
        else {other: _mean(task.metric(other), scored) for other in task.metrics},
        flops_6nd=flops_6nd,
        flops_exact=flops_exact,
        seconds=seconds,
        parameters=parameters,
        selected_passages=selected_passages,
        selected_tokens=selected_tokens,
        against=against,
        seeds=_seed_scores(scored, on_dev, on_test) if kind in ("ours", "ablation") else [],
        resampled=resampled_text(test.shape) if test is not None else "test examples",
    )


def _mean(metric: Metric, predicted: Predicted) -> float:
    return float(per_seed(metric, statistics_of(metric, predicted)).mean())


def _seed_scores(
    scored: Predicted | None, dev: Spread | None, test: Spread | None
) -> list[SeedScore]:
    """The scores of each seed beside one another, those of the first training of stage 1 first."""
    if scored is None:
        return []
    tunings = scored.shape[1]
    on_dev, on_test = (
        [None] * len(scored.seeds) if part is None else part.values for part in (dev, test)
    )
    both = zip(on_dev, on_test, strict=True)
    return [
        SeedScore(number // tunings + 1, number % tunings + 1, *values)
        for number, values in enumerate(both)
    ]


def table(scores: Scores, costs: bool = False) -> Table:
    """The score table for the terminal; with `costs`, FLOPs and time too."""
    on_test = any(row.test is not None for row in scores.rows)
    interval = f", [{scores.confidence:.0%} interval]" if on_test else ""
    title = f"{metric_name(scores.metric)} × 100, {over_seeds(scores)}{interval}"
    shown = Table(
        title=Text(title),
        title_style="bold",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    if on_test:
        shown.caption, shown.caption_justify = Text(interval_text(scores)), "left"
    shown.add_column("model", overflow="fold")
    shown.add_column("dev", justify="right", no_wrap=True)
    if on_test:
        shown.add_column("test", justify="right", no_wrap=True)
    for column in ("FLOPs", "time") if costs else ():
        shown.add_column(column, justify="right", no_wrap=True)
    for row in scores.rows:
        cells = [
            row.name,
            spread_text(row.dev),
            *([spread_text(row.test)] if on_test else []),
            *(
                [flops_text(row.flops_exact or row.flops_6nd), time_text(row.seconds)]
                if costs
                else []
            ),
        ]
        shown.add_row(
            *[Text(cell) for cell in cells], style="bold" if row.kind == "ours" else None
        )  # Text: [ ] is no markup
    return shown


def over_seeds(scores: Scores) -> str:
    """What the numbers of the table are of: 'mean ± sd over 9 seeds (3 of
    stage 1 × 3 of stage 2)'.
    """
    seeds = scores.trainings * scores.seeds
    if seeds == 1:
        return "one seed"
    stages = (
        f" ({scores.trainings} of stage 1 × {scores.seeds} of stage 2)"
        if scores.trainings > 1
        else " of stage 2"
    )
    return f"mean ± sd over {seeds} seeds{stages}"


def interval_text(scores: Scores) -> str:
    """What the intervals of the table are drawn from, for a line beneath it."""
    scored = [row for row in scores.rows if row.test is not None]
    drawn = list(dict.fromkeys(row.resampled for row in scored if row.kind in ("ours", "ablation")))
    others = list(dict.fromkeys(row.resampled for row in scored if row.resampled not in drawn))
    rest = f"; other rows: {' or '.join(others)}" if drawn and others else ""
    return f"resampled for the intervals: {' or '.join(drawn or others)}{rest}"


def metric_name(metric: str) -> str:
    """The metric as people write it."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def spread_text(value: Spread | None) -> str:
    """Returns '71.2 ± 0.8 [68.0, 74.1]', or a dash."""
    if value is None:
        return "–"
    sd = f" ± {100 * value.sd:.1f}" if len(value.values) > 1 else ""
    interval = (
        ""
        if value.low is None or value.high is None
        else f" [{100 * value.low:.1f}, {100 * value.high:.1f}]"
    )
    return f"{100 * value.mean:.1f}{sd}{interval}"


def score_text(value: Spread, confidence: float | None = None) -> str:
    """The mean, and for a given confidence its interval, for use in a sentence."""
    if confidence is None or value.low is None or value.high is None:
        return f"{100 * value.mean:.1f}"
    return (
        f"{100 * value.mean:.1f} ({confidence:.0%} "
        f"interval {100 * value.low:.1f} to {100 * value.high:.1f})"
    )


def flops_text(flops: float) -> str:
    """Returns '2.7e18', or a dash for nothing."""
    return f"{flops:.1e}".replace("e+", "e") if flops > 0 and math.isfinite(flops) else "–"


def time_text(seconds: float) -> str:
    """A duration people can read, or a dash for nothing."""
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
            f"scores.json is of another version or damaged ({error}). Run `tasklm evaluate` again."
        ) from None


def of_this_recipe(scores: Scores, run: Path) -> bool:
    """Whether scores are of the recipe that a run folder has now, which is written when a run
    starts, and they when it ends.
    """
    return scores.recipe in (
        "",
        recipe_key(run / "recipe.toml"),
    )  # "": they were written before this was noted


def _read_row(values: Mapping[str, Any]) -> Row:
    against = None if values.get("against") is None else Difference(**values["against"])
    seeds = [SeedScore(**seed) for seed in values.get("seeds", ())]
    both = {split: _read_spread(values[split]) for split in ("dev", "test")}
    return Row(**{**values, **both, "against": against, "seeds": seeds})


def _read_spread(values: Mapping[str, Any] | None) -> Spread | None:
    return None if values is None else Spread(**values)
