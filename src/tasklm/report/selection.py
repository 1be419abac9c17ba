"""The parts of the report about the selected text: its sources, scores, examples and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tasklm.analysis.word_counts import spans, word_pattern
from tasklm.report.bar_tables import bars
from tasklm.report.charts import histogram
from tasklm.report.page import (
    Html,
    clipped,
    count_of,
    el,
    folded,
    joined,
    passage,
    soft,
    table,
    word,
)

MOST_SOURCES = 20
MOST_WORDS = 30
MOST_QUERIES = 3  # of a passage
FEW_LABELS, OPEN_LABELS = 6, 2  # with few labels all tables are open
TEXT_LENGTH, QUERY_LENGTH = 1500, 300

WordOdds = Sequence[tuple[str, float, int]]


def selected(
    passages: Sequence[Mapping[str, Any]],
    sources: Mapping[str, int],
    ranks: ArrayLike,
    scores: ArrayLike,
) -> Html:
    """Counts by source, histograms of scores and ranks, and example passages, or nothing."""
    parts = []
    if sources:
        parts.append(_sources(sources))
    charts = [histogram("Scores of the selected passages", scores, "score")]
    if len(np.unique(ranks)) > 1:  # otherwise one bar, which says nothing
        charts.append(histogram("Ranks of the selected passages, 1 for the best", ranks, "rank"))
    if any(charts):
        parts.append(el("div", joined(charts), class_="charts"))
    if passages:
        parts.append(el("h3", "Example passages"))
        if any(entry.get("matched") for entry in passages):
            about = (
                "Marked: words shared with the first task example listed, whose query retrieved "
                "the passage (the most common words are not marked)."
            )
            parts.append(soft(about))
        parts += map(_card, passages)
    return joined(parts)


def _sources(sources: Mapping[str, int]) -> Html:
    """The number of passages per source."""
    total = sum(sources.values())
    ordered = sorted(sources.items(), key=lambda entry: (-entry[1], entry[0]))
    if rest := ordered[MOST_SOURCES:]:
        others = (f"{len(rest)} more sources", sum(count for _, count in rest))
        ordered[MOST_SOURCES:] = [others]
    rows = [
        (clipped(name, 60), float(count), f"{count:,} ({count / max(1, total):.0%})")
        for name, count in ordered
    ]
    return joined([el("h3", f"{total:,} passages by source"), bars(rows)])


def typical_words(entries: WordOdds, against_random: WordOdds = ()) -> Html:
    """The words that are more frequent in the selection than in random passages, or nothing.

    `against_random`: the same against the random selection of the ablation, if there is one.
    """
    odds_against = {
        "passages drawn at random from the corpus": entries,
        "the random selection (ablation)": against_random,
    }
    halves = []
    for others, words in odds_against.items():
        if words:
            rows = [
                (clipped(name, 40), odds, f"{odds:.2f} · {count:,} times")
                for name, odds, count in words[:MOST_WORDS]
            ]
            halves.append(el("div", el("h4", f"More frequent than in {others}"), bars(rows)))
    if not halves:
        return Html("")
    about = (
        "Most significant first: log-odds with a Dirichlet prior (Monroe, "
        "Colaresi and Quinn, Fightin' Words, 2008), and how often the word "
        "occurs in the selection. Words are counted in at most 2,000 passages spread evenly over "
        "the selection, and in at most 2,000 of the others."
    )
    title = el("h3", "Characteristic words of the selection")
    return joined([title, soft(about), el("div", joined(halves), class_="halves")])


def label_words(entries: Sequence[Mapping[str, Any]]) -> Html:
    """For each label its most indicative words, and how often they occur."""
    filled = [entry for entry in entries if entry.get("words")]
    if not filled:
        return Html("")
    tables = []
    for number, entry in enumerate(filled):
        unfolded = len(filled) <= FEW_LABELS or number < OPEN_LABELS
        listed = _words_table(entry["words"])
        tables.append(folded(word(entry["label"]), listed, unfolded=unfolded))
    about = (
        "The words with the highest pointwise mutual information with a "
        "label in the training examples, their occurrences per million "
        "words of the selection and of the corpus (as table 6 of ISS, "
        "arXiv 2305.12816), each counted in at most 2,000 passages, and how many training "
        "examples of the label contain them. A good selection contains them more often than the "
        "corpus does."
    )
    title = el("h3", "Indicative words of the labels")
    return joined([title, soft(about), el("div", joined(tables), class_="columns")])


def _words_table(words: Sequence[Mapping[str, Any]]) -> Html:
    rows, keys = [], []
    for one in words:
        ratio, ratio_text = None, "–"
        if one["corpus"]:
            ratio = one["selected"] / one["corpus"]
            ratio_text = f"{ratio:,.1f} ×"
        name, examples = one["word"], one["examples"]
        pmi, selected, corpus = one["pmi"], one["selected"], one["corpus"]
        numbers = [f"{pmi:.2f}", f"{selected:,.1f}", f"{corpus:,.1f}"]
        rows.append([word(name, 40), *numbers, ratio_text, f"{examples:,}"])
        keys.append([clipped(name, 40), pmi, selected, corpus, ratio, examples])
    header = ["word", "PMI", "selection", "corpus", "ratio", "examples"]
    return table(header, rows, keys=keys, label="Indicative words of a label")


def highlighted(text: str, matched: Set[str]) -> Html:
    """The text with the matched words marked."""
    plain = {
        match.span() for match in word_pattern().finditer(text) if match.group().lower() in matched
    }
    parts: list[Any] = []
    end = 0
    for start, stop in sorted(plain | set(spans(text, matched))):
        if start >= end:
            parts += [text[end:start], el("mark", text[start:stop])]
            end = stop
    return joined([*parts, text[end:]])


def _card(entry: Mapping[str, Any]) -> Html:
    """One selected passage, its details, and the task examples that retrieved it."""
    matched = {str(one).lower() for one in entry.get("matched") or ()}
    facts = [
        f"{name} {_short(entry[name])}"
        for name in ("id", "source", "score", "rank")
        if entry.get(name) not in (None, "")
    ]
    text = highlighted(clipped(entry.get("text", ""), TEXT_LENGTH), matched)
    parts = [
        el("div", " · ".join(facts), class_="soft"),
        el("p", text, class_="text", dir="auto"),
    ]
    if queries := [str(query) for query in entry.get("matched_queries") or ()]:
        summary = f"retrieved by {count_of(len(queries), 'task example')}"
        if len(queries) > MOST_QUERIES:
            summary += f", {MOST_QUERIES} of {len(queries):,} shown"
        examples = [passage(query, QUERY_LENGTH) for query in queries[:MOST_QUERIES]]
        parts.append(folded(summary, joined(examples)))
    return el("div", joined(parts), class_="card")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else clipped(value, 120)
