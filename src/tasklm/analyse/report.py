"""report.html: one self-contained file that says what a run did and how far to trust it.

Every part is optional, so a report can be written after any step; what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from tasklm.analyse.page import Html, clipped, el, escaped, folded, items, joined
from tasklm.analyse.sections import classes, cost, data, learning_curves, mistakes, score_table
from tasklm.analyse.selection import selected, typical_words
from tasklm.evaluate.scores import Scores
from tasklm.runs import write_text

MOST_TEXT = 200_000  # no real recipe is longer; the file must open anywhere


@dataclass
class ReportParts:
    """What a report shows, as plain values.

    findings: {"level": error | warning | note, "check", "message", "examples": [str]}, as the data audit returns them.
    curves: {"step": number, name: number …}; an optional "stage" makes separate charts, an optional "seed" separate lines.
    confusion: (labels, matrix), gold in the rows.
    mistakes: {"text", "gold", "predicted", "probability"}, most confident first, and, where known, "pushed": [{"label", "text", "score",
    "shared": [word], "where"}], the training examples that pushed most for the wrong label.
    selected: {"id", "text", "source", "score", "rank", "asked_by": [str]} and, where known, "matched": [word].
    words: (word, log-odds, occurrences) from `analyse.words.overrepresented`.
    contamination: {"text", …}: passages dropped because they hold dev or test text, with whatever says where.
    """

    title: str = "tasklm report"
    scores: Scores | None = None
    findings: Sequence[dict[str, Any]] = ()
    curves: Sequence[dict[str, Any]] = ()
    confusion: tuple[Sequence[str], Any] | None = None
    mistakes: Sequence[dict[str, Any]] = ()
    selected: Sequence[dict[str, Any]] = ()
    selected_sources: dict[str, int] = field(default_factory=dict)
    selected_ranks: Sequence[int] = ()
    selected_scores: Sequence[float] = ()
    words: Sequence[tuple[str, float, int]] = ()
    contamination: Sequence[dict[str, Any]] = ()
    recipe_toml: str = ""
    command: str = ""
    notes: Sequence[str] = ()


def write_report(path: Path, parts: ReportParts) -> None:
    """Writes the report as one HTML file, atomically."""
    write_text(path, render(parts))


def render(parts: ReportParts) -> str:
    """Returns the whole page."""
    made = [(name, title, body) for name, title, make in _SECTIONS if (body := make(parts))]
    links = items(el("a", title, href=f"#{name}") for name, title, _ in made)
    page = [
        el("header", el("h1", clipped(parts.title, 200)), el("p", _verdict(parts), class_="verdict")),
        el("nav", links, aria_label="Sections") if made else escaped(""),
        el("main", *(el("section", el("h2", title), body, id=name) for name, title, body in made)),
    ]
    template = Template(Path(__file__).with_name("template.html").read_text(encoding="utf-8"))
    return template.substitute(title=escaped(clipped(parts.title, 200)), body=joined(page, "\n"))


def _verdict(parts: ReportParts) -> str:
    if parts.scores is None or not parts.scores.verdict:
        return "The model has not been scored yet."
    return parts.scores.verdict


def _reproduce(parts: ReportParts) -> Html:
    made = []
    if parts.command:
        about = "With the same files and the same version of tasklm, this command gives the same run:"
        made += [el("p", about), el("pre", clipped(parts.command, MOST_TEXT))]
    if parts.recipe_toml:
        made.append(folded("The recipe, with everything that was decided", el("pre", clipped(parts.recipe_toml, MOST_TEXT))))
    return joined(made)


_SECTIONS: list[tuple[str, str, Callable[[ReportParts], Html]]] = [
    ("scores", "Scores", lambda parts: score_table(parts.scores)),
    ("notes", "Notes", lambda parts: items(clipped(note, 1000) for note in parts.notes[:100]) if parts.notes else escaped("")),
    ("learning", "Learning curves", lambda parts: learning_curves(parts.curves)),
    ("classes", "Classes", lambda parts: classes(parts.confusion)),
    ("mistakes", "Most confident mistakes", lambda parts: mistakes(parts.mistakes)),
    ("data", "The data", lambda parts: data(parts.scores, parts.findings, parts.contamination)),
    (
        "selected",
        "What was selected",
        lambda parts: selected(parts.selected, parts.selected_sources, parts.selected_ranks, parts.selected_scores),
    ),
    ("words", "Words of the selection", lambda parts: typical_words(parts.words)),
    ("cost", "Cost", lambda parts: cost(parts.scores)),
    ("reproduce", "How to reproduce", _reproduce),
]
