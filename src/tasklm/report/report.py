"""report.html: one self-contained file that says what a run did and how far to trust it.

Every part is optional, so a report can be written after any step; missing parts are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from tasklm.bill.record import Bill
from tasklm.coverage.measured import Measured
from tasklm.evaluate.confusion import ClassScore
from tasklm.evaluate.scores import Scores
from tasklm.report.answers import calibration, classes, mistakes, sure_of
from tasklm.report.costs import cost, time_bars
from tasklm.report.encoder_pictures import attention, class_vectors
from tasklm.report.label_growth import label_growth
from tasklm.report.label_sets import label_sets
from tasklm.report.page import Html, clipped, document, el, folded, items, joined, soft
from tasklm.report.raw_text import raw_text
from tasklm.report.score_tables import score_table
from tasklm.report.sections import data, heading, learning_curves
from tasklm.report.selection import label_words, selected, typical_words
from tasklm.report.text_bill import text_bill
from tasklm.report.written_texts import written_texts
from tasklm.storage.files import write_text

MOST_TEXT = 200_000  # no real recipe is longer; the page must open everywhere


@dataclass
class ReportParts:
    """The contents of a report, as plain values.

    findings: {"level": error | warning | note, "check", "message", "examples": [str]}, as the data
    audit returns them. curves: {"step": number, name: number …}; an optional "stage" makes separate
    charts, an optional "seed" separate lines. split, seed: the examples that confusion,
    class_scores and mistakes are of, and the one seed that these and all pictures of the model are
    of, as text. confusion: (labels, matrix), gold in the rows; class_scores: (label, its scores),
    also without a matrix. calibration: {"split": test | dev, "temperature", "before", "after"}, the
    last two with "ece", "nll" and "bins": [{"confidence", "accuracy", "count"}]. mistakes: {"text",
    "gold", "predicted", "probability" or None}, most confident first if known, and, if known,
    "supporting": [{"label", "text", "score", "shared": [word], "where"}], the training examples
    that support the wrong label most. selected: {"id", "text", "source", "score", "rank" (1 is
    the best), "matched_queries": [str]} and, where known, "matched": [word]. words: (word,
    log-odds, occurrences) of the selection against passages drawn at random from the corpus;
    words_random: the same against the random selection of the ablation, if there is one.
    label_words: {"label", "words": [{"word", "pmi", "selected", "corpus", "examples"}]}; the middle
    two per million words.
    class_vectors: {"labels": [str], "number": [label's number per point], "texts": [str], "stages":
    [{"name", "points": [[x, y]]}]}. attention: {"tokens": side of the pictures, "shown": [token],
    "texts": rows of dev, "positional", "vertical", "total": numbers of heads, "heads": [{"layer",
    "head", "kind": positional | vertical | both | other, "positional": share, "vertical": share,
    "picture": [[weight]]}]}. contamination: {"text", …}: passages dropped because they contain dev
    or test text, with their origin. raw_text: what `unseen_words` counts. start: the name of the
    checkpoint that the training continued from, if any. recipe_toml: the recipe with all automatic
    values filled in; made_with: versions and device. reading: notes from reading the data, such as
    skipped rows; notes: decisions taken before training. bill: what the model has read. coverage:
    what sets with a promise came to, by the names of tasks. timeline:
    the seconds of each step of the run. growth: what more labels would bring, as
    `Growth.to_dict`, or under "skipped" why that is not known.
    """

    title: str = "tasklm report"
    scores: Scores | None = None
    findings: Sequence[dict[str, Any]] = ()
    curves: Sequence[dict[str, Any]] = ()
    split: str = ""
    seed: str = ""
    confusion: tuple[Sequence[str], Any] | None = None
    class_scores: Sequence[tuple[str, ClassScore]] = ()
    calibration: dict[str, Any] | None = None
    mistakes: Sequence[dict[str, Any]] = ()
    written: Sequence[dict[str, Any]] = ()
    selected: Sequence[dict[str, Any]] = ()
    selected_sources: dict[str, int] = field(default_factory=dict)
    selected_ranks: ArrayLike = ()
    selected_scores: ArrayLike = ()
    words: Sequence[tuple[str, float, int]] = ()
    words_random: Sequence[tuple[str, float, int]] = ()
    label_words: Sequence[dict[str, Any]] = ()
    class_vectors: dict[str, Any] | None = None
    attention: dict[str, Any] | None = None
    contamination: Sequence[dict[str, Any]] = ()
    raw_text: dict[str, Any] | None = None
    start: str = ""
    recipe_toml: str = ""
    command: str = ""
    made_with: str = ""
    reading: Sequence[str] = ()
    notes: Sequence[str] = ()
    bill: Bill | None = None
    coverage: Mapping[str, Sequence[Measured]] = field(default_factory=dict)
    timeline: Mapping[str, float] = field(default_factory=dict)
    growth: dict[str, Any] | None = None


def write_report(path: Path, parts: ReportParts) -> None:
    """Writes the report as one HTML file, atomically."""
    write_text(path, render(parts))


def render(parts: ReportParts) -> str:
    """The whole page."""
    wrong = [str(mistake.get("gold", "")) for mistake in parts.mistakes]
    of = f"On {parts.split}, with the model of {parts.seed}." if parts.split else ""
    sorted_by_confidence = sure_of(parts.mistakes)
    sections = [
        ("scores", "Scores", score_table(parts.scores)),
        ("learning", "Learning curves", learning_curves(parts.curves)),
        ("classes", "Classes", classes(parts.confusion, wrong, parts.class_scores, of)),
        (
            "calibration",
            "Calibration: how far to trust its confidence",
            calibration(parts.calibration, parts.seed),
        ),
        ("sets", "Sets of labels: promised and measured coverage", label_sets(parts.coverage)),
        (
            "mistakes",
            "Most confident mistakes" if sorted_by_confidence else "Mistakes",
            mistakes(parts.mistakes, of),
        ),
        ("written", "Texts that the model wrote", written_texts(parts.written, of)),
        ("raw", "What the raw text changed", raw_text(parts.raw_text, of)),
        ("growth", "What more labels would bring", label_growth(parts.growth)),
        (
            "data",
            "The data",
            data(parts.scores, parts.findings, parts.contamination, parts.reading),
        ),
        ("selected", "Selected text", _selection(parts)),
        ("vectors", "Class vectors", class_vectors(parts.class_vectors, parts.seed)),
        ("attention", "Attention heads", attention(parts.attention, parts.seed)),
        ("read", "What the model has read", text_bill(parts.bill)),
        ("cost", "Cost", cost(parts.scores, parts.start)),
        ("time", "Where the time went", time_bars(parts.timeline)),
        ("reproduce", "Recipe and reproduction", _reproduce(parts)),
    ]
    return document(parts.title, heading(parts.title, parts.scores, parts.start), sections)


def _selection(parts: ReportParts) -> Html:
    return joined(
        [
            selected(
                parts.selected, parts.selected_sources, parts.selected_ranks, parts.selected_scores
            ),
            typical_words(parts.words, parts.words_random),
            label_words(parts.label_words),
        ]
    )


def _reproduce(parts: ReportParts) -> Html:
    blocks = []
    if parts.notes:
        blocks += [
            el("h3", "Automatic decisions"),
            items(clipped(note, 1000) for note in parts.notes),
        ]
    if parts.command:
        about = (
            "Save the recipe below as recipe.toml to train the same model again: same files, "
            "sizes, batches and steps."
        )
        blocks += [el("p", about), el("pre", clipped(parts.command, MOST_TEXT), tabindex="0")]
    if parts.made_with:
        blocks.append(soft(f"This run: {clipped(parts.made_with, 300)}."))
    if parts.recipe_toml:
        title = "The recipe with all automatic values filled in, and without the budget"
        blocks.append(folded(title, el("pre", clipped(parts.recipe_toml, MOST_TEXT), tabindex="0")))
    return joined(blocks)
