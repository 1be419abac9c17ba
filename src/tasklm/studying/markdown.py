"""A study as a page of Markdown, for docs and notes."""

from __future__ import annotations

from tasklm.studying.lines import about, header, rows
from tasklm.studying.results import Outcome


def render_markdown(outcome: Outcome) -> str:
    """The whole page."""
    study = outcome.study
    names = header(outcome)
    lines = [f"# {study.title}", "", f"{study.source}. Scale “{outcome.scale}”.", ""]
    lines += [f"- {finding.sentence()}" for finding in outcome.findings]
    lines += ["", _row(names), _row(["---"] * len(names)), *(_row(row) for row in rows(outcome))]
    lines += ["", *about(outcome)]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
