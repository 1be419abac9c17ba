"""The page of the documentation: chosen labels beside random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import t

from label_runs.cases import DEV, MORE, POOL, START, TIMES, WHOLE, Case, Doubling
from laptop_runs.data import METRICS
from tasklm.evaluate.scores import metric_name

HEAD = """# Chosen labels beside random ones

Written by `benchmarks/label_next.py`. {start} labels of each task are drawn to start with, and {more} more are
added from a pool of at most {pool:,} texts of the rest of train: those that [`tasklm label-next`](../how-to/label-next.md) chooses,
or random ones, {times} times. The linear model of words is fitted anew each time, its settings chosen on {dev} examples
of dev, and scored on test, × 100. A gain is the score with chosen labels less the mean of those with random ones;
its interval is that of 95 % for the mean over draws.

The way of choosing was chosen on dev, on the same tasks; test was read once, for this page.
{summary}

| task | metric | draws | {start} labels | {total} random | {total} chosen | gain | better draws |
|---|---|---|---|---|---|---|---|
"""


DOUBLED = """
## What twice the labels would bring

Forecast from half of at most {whole:,} labels what the other half adds to the linear model's score, in points, with
the 90 % interval that a report shows; and what it added on test (at most 2,500 examples, whose own chance the
interval does not cover). Within the interval: {inside} of {count}.

| task | labels | forecast | interval | came out | within |
|---|---|---|---|---|---|
"""


def doubled(doublings: Sequence[Doubling]) -> str:
    """The section on forecasts of twice the labels."""
    if not doublings:
        return ""
    inside = sum(one.inside for one in doublings)
    rows = [
        f"| {one.task} | {one.labels:,} | {one.gain:+.1f} | {one.low:+.1f} to {one.high:+.1f} "
        f"| {one.outcome:+.1f} | {'yes' if one.inside else 'no'} |"
        for one in doublings
    ]
    head = DOUBLED.format(whole=WHOLE, inside=inside, count=len(doublings))
    return head + "\n".join(rows) + "\n"


def interval(gains: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean."""
    if len(gains) < 2:
        return float("nan")
    wide = float(t.ppf(0.975, len(gains) - 1))
    return wide * float(np.std(gains, ddof=1)) / float(np.sqrt(len(gains)))


def markdown(cases: Sequence[Case], doublings: Sequence[Doubling] = ()) -> str:
    """The page."""
    names = list(dict.fromkeys(case.task for case in cases))
    rows, better, sure, worse, means = [], 0, 0, 0, []
    for name in names:
        own = [case for case in cases if case.task == name]
        gains = [case.gain for case in own]
        mean, half = float(np.mean(gains)), interval(gains)
        means.append(mean)
        better += mean > 0
        sure += mean - half > 0
        worse += mean + half < 0
        cells = [
            name,
            metric_name(METRICS[name]),
            str(len(own)),
            f"{np.mean([case.before for case in own]):.1f}",
            f"{np.mean([case.random for case in own]):.1f}",
            f"{np.mean([case.chosen for case in own]):.1f}",
            f"{mean:+.1f} ± {half:.1f}",
            f"{sum(gain > 0 for gain in gains)} of {len(own)}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    summary = (
        f"\nBetter than random on {better} of {len(names)} tasks, by more than chance on {sure}; worse by "
        f"more than chance on {worse}. Mean gain over tasks: {np.mean(means):+.2f} ± "
        f"{interval(means):.2f} points."
    )
    head = HEAD.format(
        start=START,
        more=MORE,
        pool=POOL,
        times=TIMES,
        dev=DEV,
        total=START + MORE,
        summary=summary,
    )
    return head + "\n".join(rows) + "\n" + doubled(doublings)
