"""A forecast as lines: a table for `tasklm forecast`, and the one line of `tasklm fit`."""

from __future__ import annotations

import io

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tasklm.console.durations import duration
from tasklm.evaluate.scores import metric_name
from tasklm.forecasting.forecast import CONFIDENCE, Expected, Forecast
from tasklm.forecasting.gains import RECORDED

WIDTH = 100  # of a table outside a terminal


def expected_text(expected: Expected) -> str:
    """A score and its interval."""
    return f"{expected.score:.1f} ({expected.low:.1f}–{expected.high:.1f})"


def table(forecast: Forecast) -> Table:
    """The scores with the labels given, and with twice as many."""
    rows = Table(box=SIMPLE_HEAD, pad_edge=False)
    rows.add_column("model")
    rows.add_column(f"{forecast.examples:,} labels", justify="right")
    rows.add_column(f"{2 * forecast.examples:,} labels", justify="right")
    linear = [expected_text(each) for each in (forecast.linear, forecast.linear_twice)]
    rows.add_row("TF-IDF + linear", *linear)
    for row in forecast.trained:
        name = f"tasklm, {row.minutes} minutes, {row.machine.upper()}"
        name += "" if row.reads_corpus else " *"
        rows.add_row(name, expected_text(row.labels), expected_text(row.twice))
    return rows


def notes(forecast: Forecast) -> list[str]:
    """The notes that explain the table."""
    covered = f"{CONFIDENCE:.0%}".replace("%", " %")
    metric, machines, runs = metric_name(forecast.metric), forecast.machines, forecast.runs
    recorded = f"{runs['cpu']} and {runs['gpu']} recorded runs, mainly on {forecast.form}"
    trend = (
        "longer budgets are extrapolated; GPU numbers are rough, because its few recorded gains "
        "vary"
    )
    lines = [
        f"expected test {metric} and {covered} intervals, from train and dev alone",
        f"CPU: {machines['cpu']}; GPU: {machines['gpu']}",
        f"the gain of tasklm is taken from {recorded}",
        f"CPU runs of {RECORDED['cpu']} minutes were recorded; {trend}",
        "with twice the labels the gain of tasklm is assumed to be the same",
    ]
    if forecast.read < forecast.examples:
        part = f"{forecast.read:,} of the {forecast.examples:,} examples"
        lines.append(f"fitted to {part} and extrapolated; --seconds 120 reads more")
    if not all(row.reads_corpus for row in forecast.trained):
        left_out = "tasklm would leave it out, so no gain is added"
        lines.append(f"* too few minutes to read this corpus: {left_out}")
    return lines


def table_text(forecast: Forecast) -> str:
    """The table and its notes as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, no_color=True)
    console.print(table(forecast))
    for line in notes(forecast):
        console.print(f"- {line}", markup=False, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()).strip("\n")


def first_line(
    metric: str,
    linear: Expected,
    minutes: float | None = None,
    trained: Expected | None = None,
) -> str:
    """The forecast of a run once it has a linear model, with that for its minutes if known."""
    begin = f"test {metric_name(metric)} {expected_text(linear)} with this linear model"
    if trained is None or minutes is None:
        return f"{begin}; more with `tasklm forecast`"
    within = f"about {expected_text(trained)} after {duration(60 * minutes)} of training"
    return f"{begin}, {within}; more with `tasklm forecast`"
