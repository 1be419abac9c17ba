"""The parts of the report about the whole run: verdict, learning curves and data.

An absent part is empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tasklm.evaluate.scores import (
    Row,
    Scores,
    Spread,
    flops_text,
    metric_name,
    score_text,
    time_text,
)
from tasklm.report.charts import Point, line_chart
from tasklm.report.costs import bert_base_times
from tasklm.report.drawing import number_text
from tasklm.report.page import (
    Html,
    clipped,
    count_of,
    el,
    escaped,
    folded,
    items,
    joined,
    passage,
    soft,
    table,
)
from tasklm.report.score_tables import mean_on, score_on

MOST_EXAMPLES, MOST_CONTAMINATED = 5, 10
CHART_ORDER = {"loss": 0, "dev score": 1}  # others come after these
LOUD = ("error", "warning")  # levels of findings that get their own card

Series = dict[str, list[Point]]
Tile = tuple[str, str, str]  # name, value, and a remark


def heading(title: str, scores: Scores | None, start: str = "") -> Html:
    """The top of the report: the verdict, the best cheap baseline, and the main numbers.

    `start` is the checkpoint that the training continued from, if any.
    """
    verdict = "The model has not been scored yet."
    if scores is not None:
        verdict = scores.verdict or verdict
    parts = [el("h1", clipped(title, 200)), el("p", clipped(verdict, 2000), class_="verdict")]
    if scores is not None:
        parts += [_cheapest(scores), _tiles(scores, start)]
    return el("header", joined(parts))


def _cheapest(scores: Scores) -> Html:
    """The score of the best baseline, if the verdict is about an ablation that beats it."""
    ours = scores.ours
    if ours is None:
        return Html("")
    on_test = ours.test is not None

    def mean(row: Row) -> float:
        return mean_on(row, on_test)

    scored = [row for row in scores.rows if score_on(row, on_test) is not None]
    baselines = [row for row in scored if row.kind == "baseline"]
    if score_on(ours, on_test) is None or not baselines:
        return Html("")
    cheap = max(baselines, key=mean)
    best = max((row for row in scored if row.kind in ("baseline", "ablation")), key=mean)
    spread = score_on(cheap, on_test)
    if best is cheap or spread is None:
        return Html("")
    side = "behind" if mean(cheap) < mean(ours) else "ahead"
    sureness = ""
    if on_test and cheap.against is not None:
        sureness = f", {cheap.against.sureness()}, resampled: {cheap.against.resampled}"
    distance = f"{100 * abs(mean(cheap) - mean(ours)):.1f} {side}{sureness}"
    return soft(f"The best cheap baseline, {cheap.name}, scores {score_text(spread)}: {distance}.")


def _tiles(scores: Scores, start: str) -> Html:
    """The numbers to remember, each in a tile."""
    if scores.ours is None:
        return Html("")
    tiles = [
        el("div", el("dt", name), el("dd", el("b", value), el("span", about)), class_="tile")
        for name, value, about in [*_score_tiles(scores), *_cost_tiles(scores.ours, start)]
    ]
    return el("dl", joined(tiles), class_="tiles") if tiles else Html("")


def _score_tiles(scores: Scores) -> list[Tile]:
    assert scores.ours is not None
    split, score = "test", scores.ours.test
    if score is None:
        split, score = "dev", scores.ours.dev
    if score is None:
        return []
    about = _seeds_text(score)
    if score.low is not None and score.high is not None:
        interval = f"{100 * score.low:.1f} to {100 * score.high:.1f}"
        about = f"{scores.confidence:.0%} interval {interval} · {about}"
    return [(f"{split} {metric_name(scores.metric)}", f"{100 * score.mean:.1f}", about)]


def _cost_tiles(ours: Row, start: str) -> list[Tile]:
    tiles: list[Tile] = []
    if ours.parameters:
        tiles.append(("parameters", _big(ours.parameters), f"{ours.parameters:,}"))
    if ours.flops_6nd > 0:
        about = f"BERT-base took {bert_base_times(ours.flops_6nd)}"
        if start:
            about = f"in addition to those of {clipped(start, 60)}"
        tiles.append(("training FLOPs", flops_text(ours.flops_6nd), about))
    if ours.seconds > 0:
        about = "selection and training" if ours.selected_passages else "training"
        tiles.append(("time", time_text(ours.seconds), about))
    if ours.selected_passages:
        tokens = f"{ours.selected_tokens:,} tokens" if ours.selected_tokens else ""
        tiles.append(("passages selected", f"{ours.selected_passages:,}", tokens))
    return tiles


def _seeds_text(score: Spread) -> str:
    """The spread of a score over all seeds, and over trainings of stage 1 if there are several."""
    if len(score.values) == 1:
        return "1 seed"
    over_seeds = f"± {100 * score.sd:.1f} over {len(score.values)} seeds"
    if score.stage1_sd is None:
        return over_seeds
    trainings = f"± {100 * score.stage1_sd:.1f} over {len(score.stage1)} trainings of stage 1"
    return f"{over_seeds}, {trainings}"


def learning_curves(curves: Sequence[Mapping[str, Any]]) -> Html:
    """The charts of each stage: losses together, dev scores together, anything else alone.

    A value at a single step, such as the dev score of a single epoch, is not a curve: it is written
    as text.
    """
    stages: dict[str, dict[str, Series]] = {}
    for record in curves:
        if is_number(record.get("step")):
            groups = stages.setdefault(clipped(record.get("stage", ""), 60), {})
            _add_points(groups, record)
    parts: list[Html] = []
    for stage, groups in stages.items():
        charts, sentences = [], []
        for group in sorted(groups, key=lambda name: CHART_ORDER.get(name, len(CHART_ORDER))):
            title = f"{stage}: {group}" if stage else group
            steps = _steps_of(groups[group])
            if len(steps) > 1:
                charts.append(line_chart(title, groups[group]))
            else:
                sentences.append(_single_step(title, steps.pop(), groups[group]))
        if any(charts):
            parts.append(el("div", joined(charts), class_="charts"))
        parts += sentences
    return joined(parts)


def _add_points(groups: dict[str, Series], record: Mapping[str, Any]) -> None:
    """Adds the numbers of a record to the lines of their charts."""
    seed = ""
    if record.get("seed") is not None:
        seed = f" · seed {clipped(record['seed'], 20)}"
    for name, value in record.items():
        if name in ("step", "stage", "seed") or not is_number(value):
            continue
        name = clipped(name, 60)
        lines = groups.setdefault(_chart_of(name), {})
        line = lines.setdefault(f"{name}{seed}".removeprefix("loss: "), [])
        line.append((record["step"], value))


def _chart_of(name: str) -> str:
    if "loss" in name:
        return "loss"
    return "dev score" if name.startswith("dev") else name


def _steps_of(series: Series) -> set[float]:
    steps: set[float] = set()
    for points in series.values():
        steps.update(step for step, _ in points)
    return steps


def _single_step(title: str, step: float, series: Series) -> Html:
    values = [f"{name} {number_text(points[-1][1])}" for name, points in series.items()]
    return soft(f"{title}, only after step {number_text(step)}: {', '.join(values)}.")


def data(
    scores: Scores | None,
    findings: Sequence[Mapping[str, Any]],
    contamination: Sequence[Mapping[str, Any]],
    reading: Sequence[str] = (),
) -> Html:
    """Notes from reading the data, the counts, the findings, and contaminated passages."""
    parts: list[Html] = []
    if reading:
        parts.append(items(clipped(note, 1000) for note in reading))
    if scores is not None and scores.data:
        parts.append(table(["", "count"], _counts(scores.data), label="Counts"))
    for level in LOUD:
        loud = [finding for finding in findings if finding.get("level") == level]
        parts += [el("div", _finding(finding), class_="card") for finding in loud]
    quiet = [finding for finding in findings if finding.get("level") not in LOUD]
    if quiet:
        parts.append(el("div", items(map(_finding, quiet)), class_="card quiet"))
    if contamination:
        parts.append(el("h3", "Corpus passages dropped because they contain text of dev or test"))
        parts += map(_dropped_passage, contamination[:MOST_CONTAMINATED])
    return joined(parts)


def _counts(data: Mapping[str, Any]) -> list[list[Any]]:
    """Rows of names and counts, grouped under the name of their group."""
    rows = []
    for name, value in data.items():
        group = value if isinstance(value, Mapping) else {"": value}
        for part, count in group.items():
            label = f"{name} {part}".replace("_", " ").strip()
            rows.append([clipped(label, 100), _value(count)])
    return rows


def _dropped_passage(entry: Mapping[str, Any]) -> Html:
    facts = [
        f"{name} {clipped(value, 300)}"
        for name, value in entry.items()
        if name != "text" and value not in (None, "")
    ]
    text = passage(str(entry.get("text", "")), 600)
    return el("div", el("div", " · ".join(facts), class_="soft"), text, class_="card")


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, NumPy's included; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _big(number: int) -> str:
    if number >= 1_000_000:
        return f"{number / 1e6:.1f}M"
    return f"{number / 1e3:.0f}K" if number >= 1000 else str(number)


def _finding(finding: Mapping[str, Any]) -> Html:
    level = clipped(finding.get("level") or "note", 20)
    style = level if level in LOUD else "note"
    check = f" · {clipped(finding['check'], 100)}" if finding.get("check") else ""
    parts = [
        el("div", el("span", level, class_=f"level {style}"), escaped(check)),
        el("p", clipped(finding.get("message", ""), 1000)),
    ]
    examples = (finding.get("examples") or ())[:MOST_EXAMPLES]
    if examples:
        listed = items(clipped(example, 300) for example in examples)
        parts.append(folded(count_of(len(examples), "example"), listed))
    return joined(parts)


def _value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped(value, 300)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
