"""A study as one self-contained page."""

from __future__ import annotations

from tasklm.evaluate.scores import flops_text
from tasklm.report.charts import line_chart
from tasklm.report.page import Html, document, el, items, joined, soft, table
from tasklm.studying.lines import about, header, rows
from tasklm.studying.results import Outcome


def render_page(outcome: Outcome) -> str:
    """The whole page."""
    study = outcome.study
    title = f"{study.title}: {study.source}"
    heading = el("header", el("h1", study.title), el("p", study.source))
    sections = [
        ("claims", "What agrees", _claims(outcome)),
        ("plot", "Plot", _plot(outcome)),
        ("scores", "Scores beside the published ones", _scores(outcome)),
    ]
    return document(title, heading, [one for one in sections if one[2]])


def _claims(outcome: Outcome) -> Html:
    return items(finding.sentence() for finding in outcome.findings)


def _plot(outcome: Outcome) -> Html:
    """Scores against the values of the study's axis, a line for each task and source."""
    if not outcome.axis:
        return Html("")
    series: dict[str, list[tuple[float, float]]] = {}
    names = {line.name: line.series for line in outcome.study.lines}
    for cell in outcome.cells:
        if cell.line not in outcome.axis:
            continue
        at, name = outcome.axis[cell.line], f"{cell.task} {names[cell.line]}".strip()
        if cell.score is not None:
            series.setdefault(f"{name}, ours", []).append((at, cell.score))
        if cell.published is not None:
            series.setdefault(f"{name}, published", []).append((at, cell.published))
    return line_chart("score × 100", series, outcome.study.axis)


def _scores(outcome: Outcome) -> Html:
    drawn = table(header(outcome), rows(outcome), label="Scores")
    total = f"All runs: {flops_text(outcome.flops)} FLOPs, shared steps counted in each."
    return joined([drawn, *(soft(line) for line in [*about(outcome), total])])
