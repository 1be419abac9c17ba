"""The cases of forecast.py → a page."""

from __future__ import annotations

from collections.abc import Sequence

from forecast_runs.cases import NEAR, SHARES, Case, counts

_TITLES = {
    "linear": "The linear model's score on test",
    "trained": "The score on test of tasklm after 5 minutes on two cores",
    "gain": "What 5 minutes of two cores add to the linear model",
    "twice": "The linear model's score with all labels, forecast from half of them",
    "gpu gain": "What minutes of a GPU add to the linear model",
}
_ABOUT = {
    "linear": "What came out is measured now, by the same code.",
    "trained": "What came out is recorded in [laptop.md](laptop.md), by the code of then.",
    "gain": "Recorded in [laptop.md](laptop.md).",
    "twice": "Every other training example was forecast from; what came out is measured now.",
    "gpu gain": (
        "Recorded in [results.md](../results.md) and [kinds.md](kinds.md), without a wide part: losses are 0."
    ),
}
_HEAD = """\
# Forecasts beside what came out

Written by `benchmarks/forecast.py`. Each forecast is made without the labels of test, and with what
recorded runs of *other* tasks gained. Scores are × 100; the tasks are cut as in
[laptop.md](laptop.md). Intervals are those of nine cases in ten.

**Of a perfect forecast**: as many would be near on average if true scores were forecast, since test
sets are finite: one of 100 examples by itself strays by 4 points.

No forecast of a task has seen its test labels, but three rules were made with outcomes of these
tasks in sight: the forms of texts that gains are compared by, that copies of held-out texts are left
out, and when dev counts alone. New tasks may fare worse.
"""


def markdown(cases: Sequence[Case], seconds: float) -> str:
    """The page."""
    parts = [_HEAD, _summary(cases), f"Seconds given to each forecast: {seconds:g}.\n"]
    parts += [_section(cases, what) for what in SHARES if any(case.what == what for case in cases)]
    return "\n".join(parts)


def _summary(cases: Sequence[Case]) -> str:
    columns = f"cases | within {NEAR} points | of a perfect forecast | within the interval"
    lines = [f"| forecast | {columns} |", "|---|---|---|---|---|"]
    for what in SHARES:
        own = counts(cases, what)
        possible = "–" if own.possible is None else f"{own.possible:.1f}"
        if own.cases:
            numbers = f"{own.cases} | {own.near} | {possible} | {own.covered}"
            lines.append(f"| {_TITLES[what]} | {numbers} |")
    return "\n".join(lines) + "\n"


def _section(cases: Sequence[Case], what: str) -> str:
    columns = f"came out | difference | within {NEAR} | in interval | test examples"
    head = f"| task | forecast | interval | {columns} |"
    lines = [f"## {_TITLES[what]}", "", _ABOUT[what], "", head, "|---|---|---|---|---|---|---|---|"]
    lines += [line(case) for case in cases if case.what == what]
    return "\n".join(lines) + "\n"


def line(case: Case) -> str:
    """A case as a row."""
    interval = f"{case.low:.1f} to {case.high:.1f}"
    apart = f"{case.actual - case.forecast:+.1f}"
    near, covered = ("yes" if value else "no" for value in (case.near, case.covered))
    tested = f"{case.tested:,}" if case.tested else "–"
    cells = [case.task, f"{case.forecast:.1f}", interval, f"{case.actual:.1f}", apart]
    return f"| {' | '.join([*cells, near, covered, tested])} |"
