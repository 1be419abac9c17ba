"""Finished runs beside one another, as one self-contained page and as a table for the terminal."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tasklm.analysis.run_files import curves_of
from tasklm.analysis.run_pairs import difference_of
from tasklm.errors import RunError
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import (
    Row,
    Scores,
    flops_text,
    from_dict,
    metric_name,
    of_this_recipe,
    spread_text,
    time_text,
)
from tasklm.evaluate.verdict import sureness
from tasklm.recipe.toml import without_login
from tasklm.report.charts import Point, line_chart, ranges
from tasklm.report.page import Html, clipped, document, el, items, joined, soft, table
from tasklm.report.sections import KINDS, cost_bars, difference_text, is_number
from tasklm.run_folder import seeds_of
from tasklm.storage.files import digest, file_digest, read_json

MODEL = "the model of the run"
UNSET = "auto"  # a key that a recipe leaves to the run


@dataclass(frozen=True)
class FinishedRun:
    """What a comparison reads of a run folder."""

    name: str
    folder: Path
    scores: Scores
    recipe: dict[str, str]  # dotted key → value
    curves: list[dict[str, Any]]
    test: str  # file of the test set, "" where there is none
    test_digest: str  # of its content, "" where it cannot be read any more


def read_runs(folders: Sequence[Path]) -> list[FinishedRun]:
    """The finished runs in some folders, each under a name of its own."""
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise RunError(
            f"a run is compared with others, not with itself: "
            f"{', '.join(names)}. Name different run folders."
        )
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def _read(folder: Path, name: str) -> FinishedRun:
    for needed in ("scores.json", "recipe.toml", "stage1/curve.json"):
        if not (folder / needed).exists():
            raise RunError(
                f"{folder} is not a finished run (no "
                f"{needed}). Finish it first: tasklm report {folder}"
            )
    recipe = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
    scores = from_dict(read_json(folder / "scores.json"))
    if not of_this_recipe(scores, folder):
        raise RunError(
            f"the scores in {folder} are of an earlier "
            f"recipe. Finish the run: tasklm report {folder}"
        )
    seeds = [
        seed
        for seed in seeds_of(folder, scores.trainings, scores.seeds)
        if (seed.folder / "curve.json").exists()
    ]
    test = str(recipe.get("data", {}).get("test", ""))
    return FinishedRun(
        name,
        folder,
        scores,
        {
            f"{section}.{key}": _shown(value)
            for section, keys in recipe.items()
            for key, value in keys.items()
        },
        curves_of(seeds),
        test,
        _content(Path(test)) if test else "",
    )


def _content(path: Path) -> str:
    """A hash of a file or of a folder of files as they are now; nothing where there is none any
    more.
    """
    if path.is_file():
        return file_digest(path)
    return (
        digest([file_digest(file) for file in sorted(path.rglob("*")) if file.is_file()])
        if path.is_dir()
        else ""
    )


@dataclass(frozen=True)
class Pair:
    """The leading run less another one on the same test examples; or why they cannot be paired."""

    other: FinishedRun
    difference: Difference | None
    problem: str = ""


def pairs_of(runs: Sequence[FinishedRun]) -> list[Pair]:
    """The leading run beside each of the others, best first; nothing where they cannot be ranked or
    dev is all there is.
    """
    ordered = _ranked(runs)
    if _obstacles(runs) or not ordered or not _on_test(ordered[0]):
        return []
    pairs = []
    for other in ordered[1:]:
        try:
            pairs.append(
                Pair(
                    other,
                    difference_of(
                        ordered[0].folder, other.folder, (ordered[0].scores, other.scores)
                    ),
                )
            )
        except RunError as error:
            pairs.append(Pair(other, None, str(error)))
    return pairs


def differences(runs: Sequence[FinishedRun]) -> list[str]:
    """What keeps the scores of the runs from being compared, in sentences; nothing where they can
    be.
    """
    return [*([_not_ranked(runs)] if _obstacles(runs) else []), *_doubts(runs)]


def _not_ranked(runs: Sequence[FinishedRun]) -> str:
    return f"The runs cannot be ranked: {'; '.join(_obstacles(runs))}."


def _obstacles(runs: Sequence[FinishedRun]) -> list[str]:
    """Returns why the runs that have scores cannot be ranked; nothing where they can be."""
    runs = [run for run in runs if _scored(run)]
    found = []
    metrics = {run.name: metric_name(run.scores.metric) for run in runs}
    if len(set(metrics.values())) > 1:
        found.append("they are scored by different metrics: " + _listed(metrics))
    splits = {run.name: "test" if _on_test(run) else "dev" for run in runs}
    sizes = {run.name: f"{run.scores.data.get(splits[run.name], 0):,} examples" for run in runs}
    if len(set(splits.values())) > 1:
        found.append("they are scored on different sets: " + _listed(splits))
    elif len(set(sizes.values())) > 1:
        found.append(f"their {splits[runs[0].name]} sets differ in size: " + _listed(sizes))
    elif len({run.test_digest for run in runs if _on_test(run) and run.test_digest}) > 1:
        found.append(
            "their test sets are different files: " + _listed({run.name: run.test for run in runs})
        )
    return found


def _doubts(runs: Sequence[FinishedRun]) -> list[str]:
    """What to keep in mind where runs are ranked all the same."""
    found = []
    without = [run.name for run in runs if not _on_test(run)]
    if without:
        found.append(
            f"No test set was scored in {', '.join(without)}: "
            f"what is compared there is dev, which chose the model."
        )
    unread = [run.name for run in runs if _on_test(run) and not run.test_digest]
    if unread:
        found.append(
            f"Whether the test sets are the same could not be "
            f"checked: the file of {', '.join(unread)} is not there any more."
        )
    return found


def recipe_differences(runs: Sequence[FinishedRun]) -> list[tuple[str, list[str]]]:
    """The keys of the recipes that are not the same in all runs, with their values."""
    keys = list(dict.fromkeys(key for run in runs for key in run.recipe))
    values = [(key, [run.recipe.get(key, UNSET) for run in runs]) for key in keys]
    return [(key, found) for key, found in values if len(set(found)) > 1]


def render_comparison(runs: Sequence[FinishedRun], pairs: Sequence[Pair] = ()) -> str:
    """The whole page; `pairs` are those of `pairs_of`."""
    title = "tasklm: " + " · ".join(run.name for run in runs)
    same = f"All runs are scored by {metric_name(runs[0].scores.metric)} on the same test set."
    said = _doubts(runs)
    verdicts = items(
        joined([el("b", run.name), ": ", clipped(run.scores.verdict or "not scored yet.", 2000)])
        for run in runs
    )
    notice = (
        el("div", items(said), class_="card warning")
        if said
        else Html("")
        if _obstacles(runs)
        else soft(same)
    )
    heading = el(
        "header",
        el("h1", clipped(title, 200)),
        el("p", leader(runs, pairs), class_="verdict"),
        notice,
        verdicts,
    )
    sections = [
        (
            "scores",
            "Scores",
            joined(
                [
                    _drawn(runs),
                    _pair_table(runs, pairs),
                    _side_by_side(runs),
                    el("h3", "All rows"),
                    _all_rows(runs),
                ]
            ),
        ),
        ("learning", "Learning curves", _curves(runs)),
        (
            "cost",
            "Cost",
            cost_bars(
                [
                    (run.name, run.scores.ours.flops_6nd)
                    for run in runs
                    if _costs(run) and run.scores.ours
                ]
            ),
        ),
        ("recipes", "What the recipes do differently", _recipes(runs)),
    ]
    return document(title, heading, sections)


def terminal_table(runs: Sequence[FinishedRun]) -> Table:
    """A row for each run: its own model beside the best other row, for the terminal."""
    metrics = {metric_name(run.scores.metric) for run in runs}
    name = metrics.pop() if len(metrics) == 1 else ""
    shown = Table(
        title=f"{name or 'score'} × 100", box=SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    shown.title_style, shown.title_justify = "bold", "left"
    shown.add_column("run", overflow="fold")
    for column in ("dev", "test"):
        shown.add_column(column, justify="right", no_wrap=True)
    shown.add_column("best other row", overflow="fold")
    for run in runs:
        row, best = run.scores.ours, "–"
        other = max(
            (one for one in run.scores.rows if one.kind in ("baseline", "ablation")),
            key=_score,
            default=None,
        )
        if row is not None and other is not None:
            best = f"{100 * _score(other):.1f} {other.name}"
        title = run.name if name else f"{run.name}, {metric_name(run.scores.metric)}"
        spreads = (None, None) if row is None else (row.dev, row.test)
        shown.add_row(*map(Text, (title, *map(spread_text, spreads), best)))
    return shown


def _ranked(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs that have scores, best first."""
    return sorted((run for run in runs if _scored(run)), key=lambda run: -_score_of(run))


def leader(runs: Sequence[FinishedRun], pairs: Sequence[Pair] = ()) -> str:
    """Which run is ahead, and whether by more than chance, as far as that is known."""
    ordered = _ranked(runs)
    if not ordered:
        return "None of the runs has been scored yet."
    if _obstacles(runs):
        return _not_ranked(runs)
    best = ordered[0]
    where = f"{'test' if _on_test(best) else 'dev'} {metric_name(best.scores.metric)}"
    texts = [_score_text(run) for run in ordered]
    if len(ordered) > 1 and f"{100 * _score_of(best):.1f}" == f"{100 * _score_of(ordered[1]):.1f}":
        return f"{best.name} and {ordered[1].name} tie: {texts[0]} {where}."
    rest = "".join(
        f"; {run.name}: {text}" for run, text in zip(ordered[1:], texts[1:], strict=True)
    )
    return f"{best.name} is ahead: {texts[0]} {where}{rest}.{_lead(best, pairs)}"


def _lead(best: FinishedRun, pairs: Sequence[Pair]) -> str:
    """How sure the lead over the second is, in a sentence."""
    if not pairs:
        return ""
    second = pairs[0]
    if second.difference is None:
        return f" How sure that is was not computed: {second.problem.rstrip('.')}."
    ours, other = best.scores.ours, second.other.scores.ours
    assert ours is not None and other is not None
    sure = sureness(ours, other, second.difference, 1 - best.scores.confidence)
    return f" Less {second.other.name}: {sure}. Resampled: {second.difference.resampled}."


def _pair_table(runs: Sequence[FinishedRun], pairs: Sequence[Pair]) -> Html:
    """A table of the leading run less each of the others."""
    known = [(pair.other.name, pair.difference) for pair in pairs if pair.difference is not None]
    if not known:
        return Html("")
    best = _ranked(runs)[0]
    rows = [[name, difference_text(one), one.p_text(), one.resampled] for name, one in known]
    drawn = table(
        [f"{best.name} less", "difference", "p", "resampled"],
        rows,
        left=1,
        label="Differences on the same test examples",
    )
    about = (
        f"Paired over test examples, [{best.scores.confidence:.0%} "
        f"interval]; the seeds of either run are drawn apart from the other's. "
        "p ≤ is the least that so many resamples can show."
    )
    return joined([drawn, soft(about)])


def _drawn(runs: Sequence[FinishedRun]) -> Html:
    rows = []
    for run in runs:
        row = run.scores.ours
        spread = None if row is None else row.test or row.dev
        if spread is not None:
            rows.append(
                (run.name, spread.mean, spread.low, spread.high, spread.values, spread_text(spread))
            )
    return ranges(rows)


def _side_by_side(runs: Sequence[FinishedRun]) -> Html:
    """A table with a row for each model and a column for each run; the models of the runs
    themselves stand in one row.
    """
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for run in runs:
        for row in run.scores.rows:
            found[MODEL if row.kind == "ours" else row.name][run.name] = row
    order = sorted(found, key=lambda name: name != MODEL)
    rows, keys = [], []
    for name in order:
        cells = [found[name].get(run.name) for run in runs]
        rows.append(
            [name, *("–" if row is None else spread_text(row.test or row.dev) for row in cells)]
        )
        keys.append([name, *("" if row is None else _score(row) for row in cells)])
    made = table(
        ["model", *(run.name for run in runs)],
        rows,
        strong=[0] if MODEL in found else [],
        keys=keys,
        label="Scores side by side",
    )
    about = (
        "Score × 100 on test, or on dev where no test set was scored; mean ± sd over seeds, "
        "[interval: test examples resampled, and seeds where there are several]."
    )
    return joined([made, soft(about)])


def _all_rows(runs: Sequence[FinishedRun]) -> Html:
    rows: list[list[str]] = []
    keys: list[list[Any]] = []
    strong: list[int] = []
    for run in runs:
        for row in run.scores.rows:
            strong += [len(rows)] if row.kind == "ours" else []
            costs = (
                flops_text(row.flops_exact),
                time_text(row.seconds),
                f"{row.parameters:,}" if row.parameters else "–",
            )
            rows.append(
                [
                    run.name,
                    row.name,
                    KINDS[row.kind],
                    spread_text(row.dev),
                    spread_text(row.test),
                    *costs,
                ]
            )
            dev, test = ("" if spread is None else spread.mean for spread in (row.dev, row.test))
            keys.append(
                [
                    run.name,
                    row.name,
                    KINDS[row.kind],
                    dev,
                    test,
                    row.flops_exact,
                    row.seconds,
                    row.parameters,
                ]
            )
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
    drawn = []
    for (stage, name), lines in sorted(
        charts.items(),
        key=lambda entry: (entry[0][0], not entry[0][1].startswith("loss"), entry[0][1]),
    ):
        series: dict[str, list[Point]] = {
            run: [(step, sum(values) / len(values)) for step, values in steps.items()]
            for run, steps in lines.items()
        }
        drawn.append(line_chart(f"{stage}: {name}", series))
    return (
        joined(
            [
                el("div", *drawn, class_="charts"),
                soft("Stage 2: means over the seeds that have come to a step."),
            ]
        )
        if drawn
        else Html("")
    )


def _recipes(runs: Sequence[FinishedRun]) -> Html:
    found = recipe_differences(runs)
    if not found:
        return el("p", "Nothing: the recipes are the same.")
    rows = [[key, *(clipped(value, 300) for value in values)] for key, values in found]
    return table(
        ["key", *(run.name for run in runs)],
        rows,
        left=1 + len(runs),
        label="Differences of the recipes",
    )


def _scored(run: FinishedRun) -> bool:
    return run.scores.ours is not None and (run.scores.ours.test or run.scores.ours.dev) is not None


def _on_test(run: FinishedRun) -> bool:
    return run.scores.ours is not None and run.scores.ours.test is not None


def _costs(run: FinishedRun) -> bool:
    return run.scores.ours is not None and run.scores.ours.flops_6nd > 0


def _score_text(run: FinishedRun) -> str:
    assert run.scores.ours is not None
    return spread_text(run.scores.ours.test or run.scores.ours.dev)


def _score_of(run: FinishedRun) -> float:
    return float("-inf") if run.scores.ours is None else _score(run.scores.ours)


def _score(row: Row) -> float:
    spread = row.test or row.dev
    return spread.mean if spread is not None else float("-inf")


def _shown(value: Any) -> str:
    return (
        ", ".join(
            without_login(str(one)) for one in (value if isinstance(value, list) else [value])
        )
        or "none"
    )


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())
