"""The parts of the report about the model: scores, curves, classes, mistakes, data and cost. An absent part is empty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from tasklm.analyse.charts import Point, bars, line_chart
from tasklm.analyse.page import Html, clipped, el, escaped, folded, items, joined, passage, table
from tasklm.evaluate.confusion import per_class
from tasklm.evaluate.scores import Row, Scores, flops_text, metric_name, spread_text, time_text

PUBLISHED = {  # training FLOPs as 6 × parameters × tokens, as the TLM (Yao et al. 2021) and ISS papers report them
    "RoBERTa-base": 1.54e21,
    "BERT-base": 2.79e19,
    "TLM small": 2.74e18,
    "ISS small": 1.82e18,
}
MOST_METRICS = 3  # beside the first
MOST_CLASSES = 25  # a larger confusion matrix cannot be read; its most frequent confusions can
MOST_MISTAKES, MOST_FINDINGS, MOST_EXAMPLES, MOST_CONTAMINATED, MOST_SHARED = 20, 100, 5, 10, 8


def score_table(scores: Scores | None) -> Html:
    """Returns the table of all rows with intervals, differences and costs."""
    if scores is None or not scores.rows:
        return Html("")
    others = [name for name in dict.fromkeys(name for row in scores.rows for name in row.metrics) if name != scores.metric][:MOST_METRICS]
    header = [
        "model",
        "dev",
        "test",
        *map(metric_name, others),
        "ours − this",
        "p",
        "FLOPs",
        "6·N·tokens",
        "time",
        "parameters",
        "passages",
    ]
    rows = [
        [
            row.name,
            spread_text(row.dev),
            spread_text(row.test),
            *(f"{100 * row.metrics[name]:.1f}" if name in row.metrics else "–" for name in others),
            *_against(row),
            flops_text(row.flops_exact),
            flops_text(row.flops_6nd),
            time_text(row.seconds),
            f"{row.parameters:,}" if row.parameters else "–",
            f"{row.selected_passages:,}" if row.selected_passages else "–",
        ]
        for row in scores.rows
    ]
    ours = [number for number, row in enumerate(scores.rows) if row.kind == "ours"]
    seeds = "1 seed" if scores.seeds == 1 else f"{scores.seeds} seeds, mean ± sample standard deviation"
    about = (
        f"{metric_name(scores.metric)} × 100; {seeds}. In brackets the {scores.confidence:.0%} bootstrap interval over test "
        "examples; the difference is a paired bootstrap over the same examples."
    )
    return joined([table(header, rows, strong=ours), el("p", about, class_="soft")])


def learning_curves(curves: Sequence[Mapping[str, Any]]) -> Html:
    """Returns the charts of each stage: loss parts together, dev scores together, anything else alone."""
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for record in curves:
        if not _is_number(record.get("step")):
            continue
        seed = "" if record.get("seed") is None else f" · seed {clipped(record['seed'], 20)}"
        for name, value in record.items():
            if name in ("step", "stage", "seed") or not _is_number(value):
                continue
            name = clipped(name, 60)
            group = "loss" if "loss" in name else "dev score" if name.startswith("dev") else name
            series = charts.setdefault((clipped(record.get("stage", ""), 60), group), {})
            series.setdefault(f"{name}{seed}", []).append((record["step"], value))
    drawn = [line_chart(f"{stage}: {group}" if stage else group, series) for (stage, group), series in charts.items()]
    return el("div", *drawn, class_="charts") if any(drawn) else Html("")


def classes(confusion: tuple[Sequence[str], Any] | None) -> Html:
    """Returns the confusion matrix (or its largest entries) and precision, recall and F1 of each class."""
    if confusion is None or not len(confusion[0]):
        return Html("")
    labels, matrix = [clipped(label, 60) for label in confusion[0]], np.asarray(confusion[1])
    scored = table(
        ["class", "precision", "recall", "F1", "examples", "predicted"],
        [
            [
                label,
                *(f"{100 * value:.1f}" for value in (one.precision, one.recall, one.f1)),
                f"{one.gold:,}",
                f"{one.predicted:,}",
            ]
            for label, one in zip(labels, per_class(matrix), strict=True)
        ],
    )
    shown = _matrix(labels, matrix) if len(labels) <= MOST_CLASSES else _confusions(labels, matrix)
    return joined([shown, el("h3", "By class"), scored])


def mistakes(entries: Sequence[Mapping[str, Any]]) -> Html:
    """Returns the texts the model was surest about and wrong."""
    made = []
    for entry in entries[:MOST_MISTAKES]:
        sure = f" with probability {entry['probability']:.2f}" if _is_number(entry.get("probability")) else ""
        head = joined(
            [
                "predicted ",
                el("b", clipped(entry.get("predicted", ""), 60)),
                f"{sure}, is ",
                el("b", clipped(entry.get("gold", ""), 60)),
            ]
        )
        text = passage(str(entry.get("text", "")), 800)
        made.append(el("div", el("div", head, class_="soft"), text, _pushed(entry), class_="card"))
    return joined(made)


def _pushed(mistake: Mapping[str, Any]) -> Html:
    """Returns the training examples that pushed most for the wrong label of a mistake."""
    found = mistake.get("pushed") or ()
    if not found:
        return Html("")
    cards = [
        joined(
            [
                el("b", clipped(push.get("label", ""), 60)),
                f" · score {push['score']:.3f} · {clipped(push.get('where', ''), 200)}",
                passage(str(push.get("text", "")), 400),
                el("div", "words in common: " + ", ".join(push["shared"][:MOST_SHARED]), class_="soft") if push.get("shared") else "",
            ]
        )
        for push in found[:MOST_EXAMPLES]
    ]
    return folded(f"Training examples that pushed most for {clipped(mistake.get('predicted', ''), 60)}", items(cards))


def data(scores: Scores | None, findings: Sequence[Mapping[str, Any]], contamination: Sequence[Mapping[str, Any]]) -> Html:
    """Returns the counts, what the audit found, and what was dropped because it holds dev or test text."""
    made: list[Html] = []
    if scores is not None and scores.data:
        counts = [[clipped(name.replace("_", " "), 100), _value(value)] for name, value in scores.data.items()]
        made.append(table(["", "count"], counts))
    order = {"error": 0, "warning": 1}
    for finding in sorted(findings, key=lambda one: order.get(str(one.get("level")), 2))[:MOST_FINDINGS]:
        made.append(_finding(finding))
    if contamination:
        made.append(el("h3", "Corpus passages dropped because they hold text of dev or test"))
        for entry in contamination[:MOST_CONTAMINATED]:
            known = [(name, value) for name, value in entry.items() if name != "text" and value not in (None, "")]
            facts = " · ".join(f"{name} {clipped(value, 300)}" for name, value in known)
            made.append(el("div", el("div", facts, class_="soft"), passage(str(entry.get("text", "")), 600), class_="card"))
    return joined(made)


def cost(scores: Scores | None) -> Html:
    """Returns what the model cost to train beside published models, counted alike."""
    ours = None if scores is None else scores.ours
    if ours is None or ours.flops_6nd <= 0:
        return Html("")
    entries = sorted([*PUBLISHED.items(), (ours.name, ours.flops_6nd)], key=lambda entry: -entry[1])
    rows = [(name, flops, flops_text(flops)) for name, flops in entries]
    here = [number for number, (name, flops) in enumerate(entries) if name == ours.name and flops == ours.flops_6nd]
    times = PUBLISHED["BERT-base"] / ours.flops_6nd
    about = (
        "Training FLOPs as 6 × parameters × tokens, on a logarithmic scale; the others as their papers report them. "
        f"BERT-base's pretraining cost {f'{times:,.0f}' if times >= 10 else f'{times:.2g}'} times as much."
    )
    exact = f" Counted exactly, this run took {flops_text(ours.flops_exact)}." if ours.flops_exact > 0 else ""
    return joined([bars(rows, log=True, strong=here), el("p", about + exact, class_="soft")])


def _against(row: Row) -> list[str]:
    if row.against is None:
        return ["–", "–"]
    low, high = 100 * row.against["low"], 100 * row.against["high"]
    p = row.against["p"]
    return [f"{100 * row.against['difference']:+.1f} [{low:+.1f}, {high:+.1f}]", "< 0.001" if p < 0.001 else f"{p:.2g}"]


def _matrix(labels: Sequence[str], matrix: Any) -> Html:
    head = el("tr", el("th", "gold \\ predicted"), *(el("th", label, scope="col") for label in labels))
    rows = []
    for gold, (label, counts) in enumerate(zip(labels, matrix, strict=True)):
        shares = counts / max(1, counts.sum())
        cells = [
            el(
                "td",
                f"{int(count):,}",
                class_="right" if gold == at else None,
                title=f"{label} → {labels[at]}: {share:.0%}",
                style=f"background:rgba(60,135,225,{0.6 * share:.2f})" if count else None,
            )
            for at, (count, share) in enumerate(zip(counts, shares, strict=True))
        ]
        rows.append(el("tr", el("th", label, scope="row"), *cells))
    return el("div", el("table", el("thead", head), el("tbody", *rows), class_="matrix"), class_="scroll", tabindex="0")


def _confusions(labels: Sequence[str], matrix: Any) -> Html:
    off = np.array(matrix)
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_CLASSES]
    pairs = [(int(flat) // len(labels), int(flat) % len(labels)) for flat in order]
    rows = [[labels[gold], labels[guess], f"{int(off[gold, guess]):,}"] for gold, guess in pairs if off[gold, guess]]
    about = el("p", f"The most frequent of all confusions between {len(labels)} classes.", class_="soft")
    return joined([about, table(["gold", "predicted", "examples"], rows, left=2)])


def _finding(finding: Mapping[str, Any]) -> Html:
    level = clipped(finding.get("level") or "note", 20)
    style = level if level in ("error", "warning") else "note"
    examples = [clipped(example, 300) for example in (finding.get("examples") or ())[:MOST_EXAMPLES]]
    check = f" · {clipped(finding['check'], 100)}" if finding.get("check") else ""
    return el(
        "div",
        el("div", el("span", level, class_=f"level {style}"), escaped(check)),
        el("p", clipped(finding.get("message", ""), 1000)),
        folded(f"{len(examples)} example{'s' if len(examples) > 1 else ''}", items(examples)) if examples else escaped(""),
        class_="card",
    )


def _value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped(value, 300)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)  # Real: numpy's too
