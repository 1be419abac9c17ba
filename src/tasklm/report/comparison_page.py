"""Finished runs side by side, as one self-contained page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tasklm.evaluate.scores import Row, flops_text, metric_name, spread_text, time_text
from tasklm.evaluate.several_tests import FEWEST
from tasklm.report.bar_tables import Range, ranges
from tasklm.report.charts import Point, line_chart
from tasklm.report.comparison import (
    FinishedRun,
    Pair,
    doubts,
    leader,
    obstacles,
    ranked,
    recipe_differences,
    score_of,
)
from tasklm.report.costs import cost_bars
from tasklm.report.page import Html, clipped, document, el, items, joined, soft, table
from tasklm.report.score_tables import KINDS, count_text, difference_text, mean_key
from tasklm.report.sections import is_number

MODEL = "the model of the run"


def render_comparison(runs: Sequence[FinishedRun], pairs: Sequence[Pair] = ()) -> str:
    """The whole page; `pairs` are those of `pairs_of`."""
    title = "tasklm: " + " · ".join(run.name for run in runs)
    heading = [
        el("h1", clipped(title, 200)),
        el("p", leader(runs, pairs), class_="verdict"),
        _notice(runs),
        _verdicts(runs),
    ]
    scores = [
        _drawn(runs),
        _pair_table(runs, pairs),
        _side_by_side(runs),
        el("h3", "All rows"),
        _all_rows(runs),
    ]
    sections = [
        ("scores", "Scores", joined(scores)),
        ("learning", "Learning curves", _curves(runs)),
        ("cost", "Cost", _costs(runs)),
        ("recipes", "Differences between the recipes", _recipes(runs)),
    ]
    return document(title, el("header", joined(heading)), sections)


def _notice(runs: Sequence[FinishedRun]) -> Html:
    """The caveats, or a note that the runs are comparable."""
    if sentences := doubts(runs):
        return el("div", items(sentences), class_="card warning")
    if obstacles(runs):
        return Html("")
    metric = metric_name(runs[0].scores.metric)
    return soft(f"All runs are scored with {metric} on the same test set.")


def _verdicts(runs: Sequence[FinishedRun]) -> Html:
    lines = []
    for run in runs:
        verdict = clipped(run.scores.verdict or "not scored yet.", 2000)
        lines.append(joined([el("b", run.name), ": ", verdict]))
    return items(lines)


def _costs(runs: Sequence[FinishedRun]) -> Html:
    own = [(run.name, ours.flops_6nd) for run in runs if (ours := run.scores.ours) is not None]
    return cost_bars([(name, flops) for name, flops in own if flops > 0])


def _pair_table(runs: Sequence[FinishedRun], pairs: Sequence[Pair]) -> Html:
    """A table of the leading run minus each of the others."""
    known = [(pair, pair.difference) for pair in pairs if pair.difference is not None]
    if not known:
        return Html("")
    best = ranked(runs)[0]
    rows = [
        [
            pair.other.name,
            difference_text(one),
            one.p_text(),
            _p_text(pair.corrected),
            _p_text(pair.seeds),
            one.resampled,
        ]
        for pair, one in known
    ]
    drawn = table(
        [f"{best.name} less", "difference", "p", "p, Holm", "p of seeds", "resampled"],
        rows,
        left=1,
        label="Differences on the same test examples",
    )
    number = "one comparison" if len(known) == 1 else f"{len(known)} comparisons"
    about = (
        f"Paired over test examples, [{best.scores.confidence:.0%} "
        f"interval]; the seeds of the two runs are drawn independently. "
        "p ≤ marks the smallest value that this number of resamples can show. "
        f"“Holm”: corrected for {number}. “p of seeds”: Mann-Whitney U test on the scores "
        f"of the seeds, if each run has {FEWEST} or more."
    )
    return joined([drawn, soft(about)])


def _p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.2g}"


def _drawn(runs: Sequence[FinishedRun]) -> Html:
    rows = []
    for run in runs:
        row = run.scores.ours
        if row is not None and (spread := row.test or row.dev) is not None:
            rows.append(Range.of(run.name, spread))
    return ranges(rows)


def _side_by_side(runs: Sequence[FinishedRun]) -> Html:
    """A row for each model and a column for each run; the runs' own models share one row."""
    models: dict[str, dict[str, Row]] = defaultdict(dict)
    for run in runs:
        for row in run.scores.rows:
            name = MODEL if row.kind == "ours" else row.name
            models[name][run.name] = row
    order = sorted(models, key=lambda name: name != MODEL)
    rows, keys = [], []
    for name in order:
        texts: list[str] = [name]
        sort: list[Any] = [name]
        for run in runs:
            text = "–"
            key: float | str = ""
            if run.name in models[name]:
                row = models[name][run.name]
                text, key = spread_text(row.test or row.dev), score_of(row)
            texts.append(text)
            sort.append(key)
        rows.append(texts)
        keys.append(sort)
    side_by_side = table(
        ["model", *(run.name for run in runs)],
        rows,
        strong=[number for number, name in enumerate(order) if name == MODEL],
        keys=keys,
        label="Scores side by side",
    )
    about = (
        "Score × 100 on test, or on dev if no test set was scored; mean ± sd over seeds, "
        "[interval: test examples resampled, and seeds if there are several]."
    )
    return joined([side_by_side, soft(about)])


def _all_rows(runs: Sequence[FinishedRun]) -> Html:
    rows: list[list[str]] = []
    keys: list[list[Any]] = []
    strong: list[int] = []
    for run in runs:
        for row in run.scores.rows:
            if row.kind == "ours":
                strong.append(len(rows))
            names = [run.name, row.name, KINDS[row.kind]]
            scores = [spread_text(row.dev), spread_text(row.test)]
            costs = [flops_text(row.flops_exact), time_text(row.seconds)]
            rows.append([*names, *scores, *costs, count_text(row.parameters)])
            means = [mean_key(row.dev), mean_key(row.test)]
            keys.append([*names, *means, row.flops_exact, row.seconds, row.parameters])
    header = ["run", "model", "what", "dev", "test", "FLOPs", "time", "parameters"]
    return table(header, rows, left=3, strong=strong, keys=keys, label="All rows of all runs")


def _curves(runs: Sequence[FinishedRun]) -> Html:
    """A chart for each curve of each stage with a line for each run, the mean of its seeds."""
    charts: dict[tuple[str, str], dict[str, dict[float, list[float]]]] = {}
    for run in runs:
        for record in run.curves:
            for name, value in record.items():
                if name not in ("step", "stage", "seed") and is_number(value):
                    lines = charts.setdefault((record["stage"], name), {})
                    lines.setdefault(run.name, {}).setdefault(record["step"], []).append(value)
    if not charts:
        return Html("")
    drawn = []
    for stage, name in sorted(charts, key=_chart_order):
        series: dict[str, list[Point]] = {
            run: [(step, sum(values) / len(values)) for step, values in steps.items()]
            for run, steps in charts[stage, name].items()
        }
        drawn.append(line_chart(f"{stage}: {name}", series))
    about = "Stage 2: means over the seeds that reached a step."
    return joined([el("div", joined(drawn), class_="charts"), soft(about)])


def _chart_order(chart: tuple[str, str]) -> tuple[str, bool, str]:
    """By stage; its losses come first."""
    stage, name = chart
    return stage, not name.startswith("loss"), name


def _recipes(runs: Sequence[FinishedRun]) -> Html:
    different = recipe_differences(runs)
    if not different:
        return el("p", "None: the recipes are the same.")
    rows = [[key, *(clipped(value, 300) for value in values)] for key, values in different]
    return table(
        ["key", *(run.name for run in runs)],
        rows,
        left=1 + len(runs),
        label="Differences between the recipes",
    )
