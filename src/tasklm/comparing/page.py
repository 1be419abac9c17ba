"""A comparison as one self-contained page."""

from __future__ import annotations

from itertools import chain
from typing import Any

from tasklm.comparing.choosing import needs_text
from tasklm.comparing.entries import OURS
from tasklm.comparing.results import Against, Comparison, Result
from tasklm.comparing.table import (
    NONE,
    latency_text,
    machine_text,
    memory_text,
    p_text,
    rate_text,
    size_text,
)
from tasklm.console.durations import duration
from tasklm.evaluate.scores import flops_text, metric_name, spread_text, time_text
from tasklm.report.bar_tables import Range, bars, ranges
from tasklm.report.page import Html, clipped, document, el, items, joined, soft, table
from tasklm.report.score_tables import count_text, difference_text, mean_key


def render_page(comparison: Comparison) -> str:
    """The whole page."""
    title = "tasklm: contestants compared"
    heading = [el("h1", title), *(el("p", line, class_="verdict") for line in comparison.advice)]
    if comparison.warnings:
        heading.append(el("div", items(comparison.warnings), class_="card warning"))
    sections = [
        ("picks", "Which to use", _picks(comparison)),
        ("scores", "Scores", _scores(comparison)),
        ("latency", "Latency", _latency(comparison)),
        ("cost", "Size and cost", _costs(comparison)),
        ("settings", "Contestants", _settings(comparison)),
    ]
    return document(title, el("header", joined(heading)), sections)


def _strong(comparison: Comparison) -> list[int]:
    """The row of tasklm."""
    return [place for place, one in enumerate(_rows(comparison)) if one.contestant == OURS]


def _rows(comparison: Comparison) -> list[Result]:
    """The contestants that have a score, best first."""
    return comparison.scored


def _picks(comparison: Comparison) -> Html:
    rows = []
    for what, title in comparison.picks.items():
        one = comparison.result(title)
        rows.append([what, title, spread_text(one.score), size_text(one.cost.size)])
        rows[-1].append(latency_text(one))
    if not rows:
        return Html("")
    drawn = table(["what counts", "use", "score", "MB", "ms, 95 %"], rows, left=2, label="Picks")
    about = (
        "Smallest, fastest and least memory are among the best and those that are not "
        f"significantly worse than it (p ≥ {1 - comparison.confidence:.2g} after Holm's "
        "correction)."
    )
    return joined([drawn, soft(about)])


def _scores(comparison: Comparison) -> Html:
    rows = _rows(comparison)
    strong = _strong(comparison)
    drawn = ranges([Range.of(one.title, one.score) for one in rows if one.score], strong)
    has_ours = any(one.ours is not None for one in rows)
    header = ["contestant", "dev", "test", "best − this", "p"]
    header += ["tasklm − this", "p"] * has_ours
    cells = [
        [
            one.title,
            spread_text(one.dev),
            spread_text(one.test),
            *_pair(one.best),
            *_pair(one.ours)[: 2 * has_ours],
        ]
        for one in rows
    ]
    keys: list[list[Any]] = [
        [
            one.title,
            mean_key(one.dev),
            mean_key(one.test),
            *_pair_keys(one.best),
            *_pair_keys(one.ours)[: 2 * has_ours],
        ]
        for one in rows
    ]
    tables = table(header, cells, strong=strong, keys=keys, label="Scores and differences")
    metrics = _other_metrics(comparison)
    sizes = ", ".join(f"{name} {count:,}" for name, count in comparison.data.items())
    about = (
        f"{metric_name(comparison.metric)} × 100 with {comparison.confidence:.0%} bootstrap "
        f"intervals over examples; {sizes}. Differences are paired over the same examples of "
        f"{comparison.split}; p is corrected for the number of comparisons (Holm). “≤” marks the "
        "smallest value that this number of resamples can show."
    )
    return joined([drawn, tables, metrics, soft(about)])


def _pair(against: Against | None) -> list[str]:
    if against is None:
        return [NONE, NONE]
    return [difference_text(against.difference), p_text(against)]


def _pair_keys(against: Against | None) -> list[Any]:
    if against is None:
        return ["", ""]
    return [against.difference.difference, against.p]


def _other_metrics(comparison: Comparison) -> Html:
    rows = _rows(comparison)
    metrics = dict.fromkeys(chain.from_iterable(one.metrics for one in rows))
    names = [name for name in metrics if name != comparison.metric]
    if not names:
        return Html("")
    cells = [[one.title, *(f"{100 * one.metrics[name]:.1f}" for name in names)] for one in rows]
    header = ["contestant", *map(metric_name, names)]
    return table(header, cells, strong=_strong(comparison), label="Other metrics")


def _latency(comparison: Comparison) -> Html:
    timed = [one for one in _rows(comparison) if one.latency is not None]
    if not timed:
        return Html("")
    drawn = bars(
        [
            (one.title, 1e3 * one.latency.median, f"{latency_text(one)} ms")
            for one in timed
            if one.latency is not None
        ],
        log=True,
        strong=[place for place, one in enumerate(timed) if one.contestant == OURS],
        notes=[f"{rate_text(one)} texts/s in batches" for one in timed],
    )
    return joined([drawn, soft(f"On a logarithmic scale. {machine_text(comparison)}.")])


def _costs(comparison: Comparison) -> Html:
    rows = _rows(comparison)
    sized = [one for one in rows if one.cost.size > 0]
    drawn = bars(
        [(one.title, float(one.cost.size), f"{size_text(one.cost.size)} MB") for one in sized],
        log=True,
        strong=[place for place, one in enumerate(sized) if one.contestant == OURS],
    )
    header = ["contestant", "needs", "MB", "training", "memory", "FLOPs", "parameters"]
    cells = [
        [
            one.title,
            needs_text(one.cost),
            size_text(one.cost.size),
            time_text(one.cost.seconds),
            memory_text(one.cost.memory),
            flops_text(one.cost.flops),
            count_text(one.cost.parameters),
        ]
        for one in rows
    ]
    keys = [
        [
            one.title,
            needs_text(one.cost),
            one.cost.size,
            one.cost.seconds,
            one.cost.memory,
            one.cost.flops,
            one.cost.parameters,
        ]
        for one in rows
    ]
    tables = table(header, cells, left=2, strong=_strong(comparison), keys=keys, label="Costs")
    about = (
        "MB: the files that predicting needs, on a logarithmic scale above. Training is the wall "
        "time from the files to the model, memory the peak of the process that trained. FLOPs of "
        "training: 6 × weights × tokens for a fine-tuned model, 2 × for one that is only read, "
        "exact for tasklm; not counted for linear models, and never for what others trained."
    )
    return joined([drawn, tables, soft(about)])


def _settings(comparison: Comparison) -> Html:
    rows = []
    for one in comparison.results:
        text = one.setting
        if one.problem:
            text = f"not compared: {one.problem}"
        if one.note and one.note != one.setting:
            text += f"; {one.note}"
        rows.append([one.title, clipped(text, 600)])
    header = ["contestant", "what dev chose, or why it is not compared"]
    drawn = table(header, rows, left=2, label="Contestants")
    about = (
        f"At most {duration(60 * comparison.minutes)} each, with the same examples and threads; "
        "dev chose all settings, and the examples of test were predicted once."
    )
    return joined([drawn, soft(about)])
