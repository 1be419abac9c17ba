"""The scores of a run: one row per model or baseline, over seeds, with intervals, costs and a verdict; scores.json."""

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

from tasklm.durations import duration
from tasklm.errors import RunError
from tasklm.evaluate.intervals import bootstrap_interval, paired_difference, per_seed, statistics_of
from tasklm.recipe_files import recipe_key
from tasklm.tasks.base import Label, Task

Kind = Literal["ours", "ensemble", "ablation", "baseline"]  # ensemble: ours, all seeds together
Predicted = tuple[Sequence[Label], Sequence[Sequence[Label]]]  # gold labels, and the predicted ones of every seed
METRIC_NAMES = {
    "macro_f1": "macro-F1", "micro_f1": "micro-F1", "weighted_f1": "weighted F1", "f1": "F1", "matthews": "Matthews correlation",
    "entity_f1": "entity F1", "answer_f1": "F1", "exact_match": "exact match", "uas": "UAS", "las": "LAS",
}  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """A score over seeds: mean, sample sd, each seed's value, and the bootstrap interval where there is one."""

    mean: float
    sd: float
    values: list[float]
    low: float | None = None
    high: float | None = None


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
    against: dict[str, float] | None = None


@dataclass(frozen=True)
class Scores:
    """Everything in scores.json."""

    metric: str
    labels: list[str]
    rows: list[Row]
    data: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1
    verdict: str = ""
    confidence: float = 0.95
    recipe: str = ""  # hash of the recipe that they are of

    @property
    def ours(self) -> Row | None:
        """Returns the row of the model itself, or None."""
        return next((row for row in self.rows if row.kind == "ours"), None)


def spread(values: Sequence[float], interval: tuple[float, float] | None = None) -> Spread:
    """Returns mean and sample sd (0 for one seed) of the seeds' scores."""
    listed = [float(value) for value in values]
    sd = float(np.std(listed, ddof=1)) if len(listed) > 1 else 0.0
    low, high = interval if interval is not None else (None, None)
    return Spread(float(np.mean(listed)), sd, listed, low, high)


def make_row(
    name: str,
    kind: Kind,
    task: Task,
    metric: str,
    *,
    dev: Predicted | None = None,
    test: Predicted | None = None,
    ours_test: Sequence[Sequence[Label]] | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    flops_6nd: float = 0.0,
    flops_exact: float = 0.0,
    seconds: float = 0.0,
    parameters: int = 0,
    selected_passages: int = 0,
    selected_tokens: int = 0,
) -> Row:
    """Returns the row of the predictions on dev and test; `ours_test`, those of our model, are paired with them."""
    chosen = task.metric(metric)
    on_dev, on_test, against = None, None, None
    if dev is not None and len(dev[0]):
        on_dev = spread(per_seed(chosen, statistics_of(chosen, *dev)))
    if test is not None and len(test[0]):
        statistics = statistics_of(chosen, *test)
        on_test = spread(per_seed(chosen, statistics), bootstrap_interval(chosen, statistics, resamples, confidence, seed))
        if ours_test is not None and kind != "ours":
            against = paired_difference(chosen, statistics_of(chosen, test[0], ours_test), statistics, resamples, confidence, seed)
    shown = test if on_test is not None else dev if on_dev is not None else None
    metrics = {}
    for other in task.metrics if shown is not None else ():
        assert shown is not None
        also = task.metric(other)
        metrics[other] = float(np.mean(per_seed(also, statistics_of(also, *shown))))
    return Row(
        name,
        kind,
        on_dev,
        on_test,
        metrics,
        flops_6nd=flops_6nd,
        flops_exact=flops_exact,
        seconds=seconds,
        parameters=parameters,
        selected_passages=selected_passages,
        selected_tokens=selected_tokens,
        against=against,
    )


def with_verdict(scores: Scores) -> Scores:
    """Returns the scores with their verdict filled in."""
    return dataclasses.replace(scores, verdict=verdict(scores))


def verdict(scores: Scores) -> str:
    """Returns one sentence: our score, the best other row, and whether the difference is more than chance.

    It is about one model: an ensemble of ours is neither judged nor compared with.
    """
    ours = scores.ours
    others = [row for row in scores.rows if row.kind not in ("ours", "ensemble")]
    judged = others if ours is None else [ours]
    on_test = any(row.test is not None for row in judged)

    def of(row: Row) -> Spread | None:
        return row.test if on_test else row.dev

    name = f"{'test' if on_test else 'dev'} {metric_name(scores.metric)}"
    scored = [(row, value) for row in others if (value := of(row)) is not None]
    best, theirs = max(scored, key=lambda pair: pair[1].mean, default=(None, None))
    mine = None if ours is None else of(ours)
    if ours is None or mine is None:
        rest = "." if best is None or theirs is None else f"; the best other row is {best.name} with {score_text(theirs)} {name}."
        return "The model has not been scored yet" + rest
    our_score = score_text(mine, scores.confidence)
    caveat = "" if on_test else "; there is no test set, and dev chose the model, so this flatters it"
    if best is None or theirs is None:
        return f"{ours.name} scores {our_score} {name}; there is nothing to compare it with{caveat}."
    sure = _sureness(best.against, 1 - scores.confidence) if on_test else ""
    if mine.mean == theirs.mean:
        return f"{ours.name} and {best.name} tie: both score {our_score} {name}{caveat}."
    if mine.mean < theirs.mean:
        return f"{best.name} wins: {score_text(theirs)} {name} against {our_score} of {ours.name}{sure}{caveat}."
    ahead = f"ahead of the best other row, {best.name}, with {score_text(theirs)}"
    return f"{ours.name} scores {our_score} {name}, {ahead}{sure}{caveat}."


def table(scores: Scores, costs: bool = False) -> Table:
    """Returns the score table for the terminal; with `costs`, FLOPs and time too."""
    on_test = any(row.test is not None for row in scores.rows)
    title = f"{metric_name(scores.metric)} × 100, mean ± sd over seeds" + (f", [{scores.confidence:.0%} interval]" if on_test else "")
    shown = Table(title=Text(title), title_style="bold", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
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
            *([flops_text(row.flops_exact or row.flops_6nd), time_text(row.seconds)] if costs else []),
        ]
        shown.add_row(*[Text(cell) for cell in cells], style="bold" if row.kind == "ours" else None)  # Text: [ ] is no markup
    return shown


def metric_name(metric: str) -> str:
    """Returns the metric as people write it."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def spread_text(value: Spread | None) -> str:
    """Returns '71.2 ± 0.8 [68.0, 74.1]', or a dash."""
    if value is None:
        return "–"
    sd = f" ± {100 * value.sd:.1f}" if len(value.values) > 1 else ""
    interval = "" if value.low is None or value.high is None else f" [{100 * value.low:.1f}, {100 * value.high:.1f}]"
    return f"{100 * value.mean:.1f}{sd}{interval}"


def score_text(value: Spread, confidence: float | None = None) -> str:
    """Returns the mean, and for a given confidence its interval, for use in a sentence."""
    if confidence is None or value.low is None or value.high is None:
        return f"{100 * value.mean:.1f}"
    return f"{100 * value.mean:.1f} ({confidence:.0%} interval {100 * value.low:.1f} to {100 * value.high:.1f})"


def flops_text(flops: float) -> str:
    """Returns '2.7e18', or a dash for nothing."""
    return f"{flops:.1e}".replace("e+", "e") if flops > 0 and math.isfinite(flops) else "–"


def time_text(seconds: float) -> str:
    """Returns a duration people can read, or a dash for nothing."""
    return duration(seconds) if seconds > 0 else "–"


def to_dict(scores: Scores) -> dict[str, Any]:
    """Returns the scores as plain values, ready for JSON."""
    return dataclasses.asdict(scores)


def from_dict(values: Mapping[str, Any]) -> Scores:
    """Returns the scores that `to_dict` wrote."""
    try:
        rows = [Row(**{**row, "dev": _read_spread(row["dev"]), "test": _read_spread(row["test"])}) for row in values["rows"]]
        return Scores(**{**values, "rows": rows})
    except (KeyError, TypeError) as error:
        raise RunError(f"scores.json is of another version or damaged ({error}). Run `tasklm evaluate` again.") from None


def of_this_recipe(scores: Scores, run: Path) -> bool:
    """Returns whether scores are of the recipe that a run folder has now, which is written when a run starts, and they when it ends."""
    return scores.recipe in ("", recipe_key(run / "recipe.toml"))  # "": they were written before this was noted


def _read_spread(values: Mapping[str, Any] | None) -> Spread | None:
    return None if values is None else Spread(**values)


def _sureness(against: Mapping[str, float] | None, level: float) -> str:
    if against is None:
        return ""
    size = f"{100 * abs(against['difference']):.1f}"
    p = "p < 0.001" if against["p"] < 0.001 else f"p = {against['p']:.2g}"
    found = "significant" if against["p"] < level else "not significant: it may be chance"
    return f" (difference {size}, {p}, {found})"
