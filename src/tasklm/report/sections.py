"""The parts of the report about the whole run: verdict, scores, curves, data and cost.

An absent part is empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import (
    Row,
    Scores,
    Spread,
    flops_text,
    interval_text,
    metric_name,
    over_seeds,
    score_text,
    spread_text,
    time_text,
)
from tasklm.report.charts import Point, bars, line_chart, number_text, ranges
from tasklm.report.page import (
    Html,
    clipped,
    el,
    escaped,
    folded,
    items,
    joined,
    passage,
    soft,
    table,
)

TLM, ISS = "TLM, table 2", "ISS, table 3"
SOURCES = (
    "TLM: NLP From Scratch Without Large-Scale Pretraining, arXiv 2111.04130. "
    "ISS: Farewell to Aimless Large-scale Pretraining: "
    "Influential Subset Selection for Language Model, arXiv 2305.12816."
)
PUBLISHED = [  # training FLOPs as 6 × parameters × tokens, and the table that reports them
    ("RoBERTa-large", 4.36e21, TLM),
    ("RoBERTa-base", 1.54e21, TLM),
    ("BERT-large", 9.07e19, TLM),
    ("TLM large", 7.59e19, TLM),
    ("BERT-base", 2.79e19, TLM),
    ("TLM medium", 8.30e18, TLM),
    ("ISS large", 8.30e18, ISS),
    ("ISS medium", 4.15e18, ISS),
    ("TLM small", 2.74e18, TLM),
    ("ISS small", 1.82e18, ISS),
]
BERT_BASE = 2.79e19
MOST_METRICS = 3  # beside the first
MOST_EXAMPLES, MOST_CONTAMINATED = 5, 10
KINDS = {
    "ours": "this model",
    "ensemble": "this model, all seeds",
    "ablation": "ablation",
    "baseline": "baseline",
}


def heading(title: str, scores: Scores | None, start: str = "") -> Html:
    """The top of the report: the verdict in one sentence, what the cheap baselines say, and the
    numbers to remember.

    `start` is the checkpoint that the training went on from, if from one.
    """
    sentence = (
        scores.verdict
        if scores is not None and scores.verdict
        else "The model has not been scored yet."
    )
    made = [el("h1", clipped(title, 200)), el("p", clipped(sentence, 2000), class_="verdict")]
    if scores is not None:
        made += [_cheapest(scores), _tiles(scores, start)]
    return el("header", *made)


def _cheapest(scores: Scores) -> Html:
    """What the best baseline scores, where the verdict is about an ablation,
    which is better still.
    """
    ours, on_test = scores.ours, scores.ours is not None and scores.ours.test is not None
    others = [
        row
        for row in scores.rows
        if row.kind in ("baseline", "ablation") and _of(row, on_test) is not None
    ]
    best = max(others, key=lambda row: _mean(row, on_test), default=None)
    cheap = max(
        (row for row in others if row.kind == "baseline"),
        key=lambda row: _mean(row, on_test),
        default=None,
    )
    if ours is None or best is None or cheap is None or best is cheap or _of(ours, on_test) is None:
        return Html("")
    spread = _of(cheap, on_test)
    assert spread is not None
    side = "behind" if _mean(cheap, on_test) < _mean(ours, on_test) else "ahead"
    p = (
        f", {cheap.against.sureness()}, resampled: {cheap.against.resampled}"
        if on_test and cheap.against is not None
        else ""
    )
    size = f"{100 * abs(_mean(cheap, on_test) - _mean(ours, on_test)):.1f}"
    return soft(
        f"The best cheap baseline, {cheap.name}, scores {score_text(spread)}: {size} {side}{p}."
    )


def _tiles(scores: Scores, start: str) -> Html:
    ours = scores.ours
    if ours is None:
        return Html("")
    score = ours.test if ours.test is not None else ours.dev
    where = "test" if ours.test is not None else "dev"
    shown = []
    if score is not None:
        interval = (
            ""
            if score.low is None or score.high is None
            else f"{scores.confidence:.0%} interval {_range(score)}"
        )
        shown.append(
            (
                f"{where} {metric_name(scores.metric)}",
                f"{100 * score.mean:.1f}",
                " · ".join(filter(None, [interval, _spreads(score)])),
            )
        )
    if ours.parameters:
        shown.append(("parameters", _big(ours.parameters), f"{ours.parameters:,}"))
    if ours.flops_6nd > 0:
        about = (
            f"beside those of {clipped(start, 60)}"
            if start
            else f"BERT-base took {_times(BERT_BASE / ours.flops_6nd)}"
        )
        shown.append(("training FLOPs", flops_text(ours.flops_6nd), about))
    if ours.seconds > 0:
        shown.append(
            (
                "time",
                time_text(ours.seconds),
                "selection and training" if ours.selected_passages else "training",
            )
        )
    if ours.selected_passages:
        tokens = f"{ours.selected_tokens:,} tokens" if ours.selected_tokens else ""
        shown.append(("passages selected", f"{ours.selected_passages:,}", tokens))
    made = [
        el("div", el("dt", name), el("dd", el("b", value), el("span", about)), class_="tile")
        for name, value, about in shown
    ]
    return el("dl", *made, class_="tiles") if made else Html("")


def _spreads(score: Spread) -> str:
    """The spread of a score over all seeds, and over the trainings of stage 1 where there are
    several.
    """
    if len(score.values) == 1:
        return "1 seed"
    stage1 = (
        ""
        if score.stage1_sd is None
        else f", ± {100 * score.stage1_sd:.1f} over {len(score.stage1)} trainings of stage 1"
    )
    return f"± {100 * score.sd:.1f} over {len(score.values)} seeds{stage1}"


def score_table(scores: Scores | None) -> Html:
    """All rows drawn on one scale, and tables of their scores, of other metrics and of costs.

    One table of all would be wider than a page.
    """
    if scores is None or not scores.rows:
        return Html("")
    others = [
        name
        for name in dict.fromkeys(name for row in scores.rows for name in row.metrics)
        if name != scores.metric
    ][:MOST_METRICS]
    costs = ["FLOPs", "6·N·tokens", "time", "parameters", "passages"]
    stage1 = ["stage 1"] if scores.trainings > 1 else []
    header = [
        "model",
        "what",
        "dev",
        "test",
        *stage1,
        "each seed",
        *map(metric_name, others),
        "ours − this",
        "p",
        *costs,
    ]
    cells = [_cells(row, others, bool(stage1)) for row in scores.rows]
    keys = [_keys(row, others, bool(stage1)) for row in scores.rows]
    ours = [number for number, row in enumerate(scores.rows) if row.kind == "ours"]

    def part(first: int, last: int, label: str, left: int = 1, also: Sequence[int] = ()) -> Html:
        columns = [0, *range(first, last), *also]
        body, sort = ([[row[at] for at in columns] for row in rows] for rows in (cells, keys))
        names = [header[at] for at in columns]
        return table(names, body, left=left, strong=ours, keys=sort, label=label)

    each = 4 + len(stage1)  # the column of each seed
    after = each + 1 + len(others)  # the column of the difference
    seeded = any(
        len(spread.values) > 1 for row in scores.rows if (spread := row.test or row.dev) is not None
    )
    tables = [part(1, each, "Scores", left=2, also=(after, after + 1))]
    if others or seeded:
        tables.append(part(each if seeded else each + 1, after, "Other metrics"))
    tables.append(part(after + 2, len(header), "Costs"))
    means = "; in the column stage 1, over the means of its trainings" if stage1 else ""
    about = (
        f"{metric_name(scores.metric)} × 100; "
        f"{over_seeds(scores)}{means} (sample standard deviations). "
        f"In brackets {scores.confidence:.0%} bootstrap intervals; {interval_text(scores)}. "
        "Differences are paired over test examples, "
        "the seeds of either side drawn apart from the other's; "
        "p ≤ is the least that so many resamples can show. "
        "FLOPs are counted exactly, forward and backward; "
        "6·N·tokens is the estimate that papers report. "
        "These and time are of selection, and of one seed "
        "of stages 1 and 2, on average (an ensemble: all seeds)."
    )
    return joined([_ranges(scores), *tables, soft(about)])


def _ranges(scores: Scores) -> Html:
    on_test = any(row.test is not None for row in scores.rows)
    drawn = [(row, spread) for row in scores.rows if (spread := _of(row, on_test)) is not None]
    rows = [
        (row.name, spread.mean, spread.low, spread.high, spread.values, spread_text(spread))
        for row, spread in drawn
    ]
    strong = [number for number, (row, _) in enumerate(drawn) if row.kind == "ours"]
    name = el("h3", f"{'test' if on_test else 'dev'} {metric_name(scores.metric)} × 100")
    return joined([name, ranges(rows, strong)]) if len(rows) > 1 else Html("")


def _cells(row: Row, others: Sequence[str], several: bool) -> list[Any]:
    sd = _stage1_sd(row)
    stage1 = ["–" if sd is None else f"± {100 * sd:.1f}"] if several else []
    return [
        row.name,
        KINDS[row.kind],
        spread_text(row.dev),
        spread_text(row.test),
        *stage1,
        _each_seed(row),
        *(f"{100 * row.metrics[name]:.1f}" if name in row.metrics else "–" for name in others),
        *_against(row),
        flops_text(row.flops_exact),
        flops_text(row.flops_6nd),
        time_text(row.seconds),
        f"{row.parameters:,}" if row.parameters else "–",
        f"{row.selected_passages:,}" if row.selected_passages else "–",
    ]


def _stage1_sd(row: Row) -> float | None:
    score = row.test or row.dev
    return None if score is None else score.stage1_sd


def _each_seed(row: Row) -> str:
    """The scores of single seeds; those of one training of stage 1 stand together."""
    score = row.test or row.dev
    if score is None or len(score.values) == 1:
        return "–"
    tunings = len(score.values) // max(1, len(score.stage1))
    values = [f"{100 * value:.1f}" for value in score.values]
    return " | ".join(
        " ".join(values[start : start + tunings]) for start in range(0, len(values), tunings)
    )


def _keys(row: Row, others: Sequence[str], several: bool) -> list[Any]:
    """What the cells of a row are sorted by."""
    dev, test = (spread.mean if spread is not None else "" for spread in (row.dev, row.test))
    difference, p = (row.against.difference, row.against.p) if row.against is not None else ("", "")
    stage1 = [_stage1_sd(row) or ""] if several else []
    costs = [row.flops_exact, row.flops_6nd, row.seconds, row.parameters, row.selected_passages]
    return [
        row.name,
        KINDS[row.kind],
        dev,
        test,
        *stage1,
        test or dev,
        *(row.metrics.get(name, "") for name in others),
        difference,
        p,
        *costs,
    ]


def learning_curves(curves: Sequence[Mapping[str, Any]]) -> Html:
    """The charts of each stage: losses together, dev scores together, anything else alone.

    What has a value at one step only, such as the dev score of a single epoch, is no curve: it is
    put into words.
    """
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for record in curves:
        if not is_number(record.get("step")):
            continue
        seed = "" if record.get("seed") is None else f" · seed {clipped(record['seed'], 20)}"
        for name, value in record.items():
            if name in ("step", "stage", "seed") or not is_number(value):
                continue
            name = clipped(name, 60)
            group = "loss" if "loss" in name else "dev score" if name.startswith("dev") else name
            series = charts.setdefault((clipped(record.get("stage", ""), 60), group), {})
            series.setdefault(f"{name}{seed}".removeprefix("loss: "), []).append(
                (record["step"], value)
            )
    order = {"loss": 0, "dev score": 1}
    stages = list(dict.fromkeys(stage for stage, _ in charts))
    ordered = sorted(
        charts.items(), key=lambda entry: (stages.index(entry[0][0]), order.get(entry[0][1], 2))
    )
    made = []
    for stage in stages:
        drawn, sentences = [], []
        for group, series in [(group, series) for (of, group), series in ordered if of == stage]:
            title = f"{stage}: {group}" if stage else group
            steps = {step for points in series.values() for step, _ in points}
            if len(steps) > 1:
                drawn.append(line_chart(title, series))
            else:
                values = ", ".join(
                    f"{name} {number_text(points[-1][1])}" for name, points in series.items()
                )
                sentences.append(
                    soft(f"{title}, after step {number_text(steps.pop())} alone: {values}.")
                )
        made += [el("div", *drawn, class_="charts")] if any(drawn) else []
        made += sentences
    return joined(made)


def data(
    scores: Scores | None,
    findings: Sequence[Mapping[str, Any]],
    contamination: Sequence[Mapping[str, Any]],
    reading: Sequence[str] = (),
) -> Html:
    """What was noticed while reading, the counts, what the audit found, and what was dropped
    because it holds dev or test text.
    """
    made: list[Html] = [items(clipped(note, 1000) for note in reading)] if reading else []
    if scores is not None and scores.data:
        counts: list[list[Any]] = []
        for name, value in scores.data.items():
            inner = value.items() if isinstance(value, Mapping) else [("", value)]
            counts += [
                [clipped(f"{name} {part}".replace("_", " ").strip(), 100), _value(count)]
                for part, count in inner
            ]
        made.append(table(["", "count"], counts, label="Counts"))
    loud = [one for level in ("error", "warning") for one in findings if one.get("level") == level]
    quiet = [one for one in findings if one.get("level") not in ("error", "warning")]
    made += [el("div", _finding(one), class_="card") for one in loud]
    if quiet:
        made.append(el("div", items(_finding(one) for one in quiet), class_="card quiet"))
    if contamination:
        made.append(el("h3", "Corpus passages dropped because they hold text of dev or test"))
        for entry in contamination[:MOST_CONTAMINATED]:
            known = [
                (name, value)
                for name, value in entry.items()
                if name != "text" and value not in (None, "")
            ]
            facts = " · ".join(f"{name} {clipped(value, 300)}" for name, value in known)
            made.append(
                el(
                    "div",
                    el("div", facts, class_="soft"),
                    passage(str(entry.get("text", "")), 600),
                    class_="card",
                )
            )
    return joined(made)


def cost(scores: Scores | None, start: str = "") -> Html:
    """What the model cost to train beside published models, counted alike; `start` is the
    checkpoint that it went on from.
    """
    ours = None if scores is None else scores.ours
    if ours is None or ours.flops_6nd <= 0:
        return Html("")
    exact = (
        f" Counted exactly, this run took {flops_text(ours.flops_exact)}."
        if ours.flops_exact > 0
        else ""
    )
    compared = (
        f"This run went on from {clipped(start, 60)}, whose own training is not counted."
        if start
        else f"BERT-base's pretraining cost {_times(BERT_BASE / ours.flops_6nd)}."
    )
    return joined([cost_bars([(ours.name, ours.flops_6nd)]), soft(f"{compared}{exact}")])


def cost_bars(own: Sequence[tuple[str, float]]) -> Html:
    """Returns training FLOPs of some models beside the published ones, largest first, on a
    logarithmic scale.
    """
    entries: list[tuple[str, float, str]] = [
        *PUBLISHED,
        *((name, flops, "") for name, flops in own),
    ]
    entries.sort(key=lambda entry: -entry[1])
    rows = [(name, flops, flops_text(flops)) for name, flops, _ in entries]
    here = [number for number, (_, _, source) in enumerate(entries) if not source]
    notes = [source or "this page" for _, _, source in entries]
    about = (
        "Training FLOPs as 6 × parameters × tokens, "
        "on a logarithmic scale: pretraining for BERT and RoBERTa, all of the training "
        f"for the others (TLM's are means over eight tasks). "
        f"The last column says which table reports the number. {SOURCES}"
    )
    return joined([bars(rows, log=True, strong=here, notes=notes), soft(about)])


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, numpy's too; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _of(row: Row, on_test: bool) -> Spread | None:
    return row.test if on_test else row.dev


def _mean(row: Row, on_test: bool) -> float:
    spread = _of(row, on_test)
    return spread.mean if spread is not None else -math.inf


def _range(spread: Spread) -> str:
    assert spread.low is not None and spread.high is not None
    return f"{100 * spread.low:.1f} to {100 * spread.high:.1f}"


def _times(ratio: float) -> str:
    return f"{f'{ratio:,.0f}' if ratio >= 10 else f'{ratio:.2g}'} times as much"


def _big(number: int) -> str:
    return (
        f"{number / 1e6:.1f}M"
        if number >= 1_000_000
        else f"{number / 1e3:.0f}K"
        if number >= 1000
        else str(number)
    )


def _against(row: Row) -> list[str]:
    if row.against is None:
        return ["–", "–"]
    return [difference_text(row.against), row.against.p_text()]


def difference_text(against: Difference) -> str:
    """Returns '+4.6 [+1.2, +7.9]'."""
    return f"{100 * against.difference:+.1f} [{100 * against.low:+.1f}, {100 * against.high:+.1f}]"


def _finding(finding: Mapping[str, Any]) -> Html:
    level = clipped(finding.get("level") or "note", 20)
    style = level if level in ("error", "warning") else "note"
    examples = [
        clipped(example, 300) for example in (finding.get("examples") or ())[:MOST_EXAMPLES]
    ]
    check = f" · {clipped(finding['check'], 100)}" if finding.get("check") else ""
    named = el("div", el("span", level, class_=f"level {style}"), escaped(check))
    shown = (
        folded(f"{len(examples)} example{'s' if len(examples) > 1 else ''}", items(examples))
        if examples
        else escaped("")
    )
    return joined([named, el("p", clipped(finding.get("message", ""), 1000)), shown])


def _value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped(value, 300)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
