"""The parts of the report about the selected text: where it comes from, how it scored, what it
looks like, and its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from numpy.typing import ArrayLike

from tasklm.analysis.word_counts import spans, word_pattern
from tasklm.report.charts import bars, histogram
from tasklm.report.page import (
    Html,
    clipped,
    el,
    escaped,
    folded,
    joined,
    passage,
    soft,
    table,
    word,
)

MOST_SOURCES = 20
MOST_WORDS = 30
FEW_LABELS, OPEN_LABELS = 6, 2  # of few labels all tables are open
TEXT_LENGTH, QUERY_LENGTH = 1500, 300

WordOdds = Sequence[tuple[str, float, int]]


def selected(
    passages: Sequence[Mapping[str, Any]],
    sources: Mapping[str, int],
    ranks: ArrayLike,
    scores: ArrayLike,
) -> Html:
    """Returns counts by source, histograms of scores and ranks, and example
    passages, or nothing.
    """
    made = []
    if sources:
        total = sum(sources.values())
        ordered = sorted(sources.items(), key=lambda entry: (-entry[1], entry[0]))
        if rest := ordered[MOST_SOURCES:]:
            ordered = [
                *ordered[:MOST_SOURCES],
                (f"{len(rest)} more sources", sum(count for _, count in rest)),
            ]
        shown = [
            (clipped(name, 60), float(count), f"{count:,} ({count / max(1, total):.0%})")
            for name, count in ordered
        ]
        made += [el("h3", f"{total:,} passages by source"), bars(shown)]
    charts = [
        histogram("Scores of the selected passages", scores, "score"),
        histogram("Ranks of the selected passages, 1 for the best", ranks, "rank"),
    ]
    if any(charts):
        made.append(el("div", *charts, class_="charts"))
    if passages:
        marked = any(entry.get("matched") for entry in passages)
        about = (
            "Marked: words shared with the first task example listed, "
            "which asked for the passage (the most common are not marked)."
        )
        made += [
            el("h3", "Example passages"),
            *([soft(about)] if marked else []),
            *_cards(passages),
        ]
    return joined(made)


def typical_words(entries: WordOdds, against_random: WordOdds = ()) -> Html:
    """The words that the selection holds more often than random passages of the corpus, or nothing.

    `against_random`: more often than the random selection of the ablation, where there is one.
    """
    made = []
    for others, some in (
        ("passages drawn at random from the corpus", entries),
        ("the random selection (ablation)", against_random),
    ):
        if some:
            shown = [
                (clipped(one, 40), odds, f"{odds:.2f} · {count:,} times")
                for one, odds, count in some[:MOST_WORDS]
            ]
            made.append(el("div", el("h4", f"More often than in {others}"), bars(shown)))
    if not made:
        return Html("")
    about = (
        "The surest first: log-odds with a Dirichlet prior (Monroe, "
        "Colaresi and Quinn, Fightin' Words, 2008), and how often the word "
        "occurs in the selection. Both are counted in at most 2,000 "
        "passages spread evenly over the selection, and in as few of the others."
    )
    return joined(
        [el("h3", "Words of the selection"), soft(about), el("div", *made, class_="halves")]
    )


def label_words(entries: Sequence[Mapping[str, Any]]) -> Html:
    """For each label the words that point to it most and how often the selection and the corpus
    hold them, or nothing.
    """
    filled = [entry for entry in entries if entry.get("words")]
    if not filled:
        return Html("")
    made = []
    for number, entry in enumerate(filled):
        shown = entry["words"]
        ratios = [one["selected"] / one["corpus"] if one["corpus"] else None for one in shown]
        rows = [
            [
                word(one["word"], 40),
                f"{one['pmi']:.2f}",
                f"{one['selected']:,.1f}",
                f"{one['corpus']:,.1f}",
                "–" if ratio is None else f"{ratio:,.1f} ×",
                f"{one['examples']:,}",
            ]
            for one, ratio in zip(shown, ratios, strict=True)
        ]
        keys = [
            [
                clipped(one["word"], 40),
                one["pmi"],
                one["selected"],
                one["corpus"],
                ratio,
                one["examples"],
            ]
            for one, ratio in zip(shown, ratios, strict=True)
        ]
        header = ["word", "PMI", "selection", "corpus", "ratio", "examples"]
        listed = table(header, rows, keys=keys, label="Words of a label")
        made.append(
            folded(
                word(entry["label"]),
                listed,
                shown=len(filled) <= FEW_LABELS or number < OPEN_LABELS,
            )
        )
    about = (
        "The words with the highest pointwise mutual information with a "
        "label in the training examples, their occurrences per million "
        "words of the selection and of the corpus (as table 6 of ISS, "
        "arXiv 2305.12816), each counted in at most 2,000 passages, and how "
        "many training examples of the label hold them. "
        "A selection that serves the task holds them more often than the corpus."
    )
    return joined(
        [el("h3", "Words that point to a label"), soft(about), el("div", *made, class_="columns")]
    )


def highlighted(text: str, matched: Set[str]) -> Html:
    """The text with the matched words marked."""
    plain = {
        match.span() for match in word_pattern().finditer(text) if match.group().lower() in matched
    }
    made: list[Any] = []
    end = 0
    for start, stop in sorted(plain | set(spans(text, matched))):
        if start >= end:
            made += [text[end:start], el("mark", text[start:stop])]
            end = stop
    return joined([*made, text[end:]])


def _cards(passages: Sequence[Mapping[str, Any]]) -> list[Html]:
    made = []
    for entry in passages:
        matched = {str(one).lower() for one in entry.get("matched") or ()}
        known = [
            name for name in ("id", "source", "score", "rank") if entry.get(name) not in (None, "")
        ]
        facts = [f"{name} {_short(entry[name])}" for name in known]
        asked = [str(query) for query in entry.get("asked_by") or ()]
        text = el(
            "p",
            highlighted(clipped(entry.get("text", ""), TEXT_LENGTH), matched),
            class_="text",
            dir="auto",
        )
        queries = escaped("")
        if asked:
            more = "" if len(asked) <= 3 else f", 3 of {len(asked):,} shown"
            queries = folded(
                f"asked for by {len(asked):,} task example{'s' if len(asked) > 1 else ''}{more}",
                *(passage(query, QUERY_LENGTH) for query in asked[:3]),
            )
        made.append(
            el("div", el("div", " · ".join(facts), class_="soft"), text, queries, class_="card")
        )
    return made


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else clipped(value, 120)
