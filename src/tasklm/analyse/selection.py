"""The parts of the report about the selected text: where it comes from, how it scored, what it looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tasklm.analyse.charts import bars, histogram
from tasklm.analyse.page import Html, clipped, el, escaped, folded, joined, passage
from tasklm.analyse.words import word_pattern, words

MOST_PASSAGES = 10
MOST_SOURCES = 20
TEXT_LENGTH, QUERY_LENGTH = 1500, 300


def selected(passages: Sequence[Mapping[str, Any]], sources: Mapping[str, int], ranks: Sequence[int], scores: Sequence[float]) -> Html:
    """Returns counts by source, histograms of scores and ranks, and example passages, or nothing."""
    made = []
    if sources:
        total = sum(sources.values())
        ordered = sorted(sources.items(), key=lambda entry: (-entry[1], entry[0]))
        if rest := ordered[MOST_SOURCES:]:
            ordered = [*ordered[:MOST_SOURCES], (f"{len(rest)} more sources", sum(count for _, count in rest))]
        shown = [(clipped(name, 60), float(count), f"{count:,} ({count / max(1, total):.0%})") for name, count in ordered]
        made += [el("h3", f"{total:,} passages by source"), bars(shown)]
    charts = [
        histogram("Scores of the selected passages", scores, "score"),
        histogram("Best rank among the passages of a task example", ranks, "rank"),
    ]
    if any(charts):
        made.append(el("div", *charts, class_="charts"))
    if passages:
        made += [el("h3", "Example passages"), _explanation(), *_cards(passages[:MOST_PASSAGES])]
    return joined(made)


def typical_words(entries: Sequence[tuple[str, float, int]]) -> Html:
    """Returns the words that the selection holds more often than a random sample of the corpus, or nothing."""
    if not entries:
        return Html("")
    shown = [(clipped(word, 40), odds, f"{odds:.2f} · {count:,} times") for word, odds, count in entries[:40]]
    return joined(
        [
            el(
                "p",
                "Words that occur more often in the selection than in a random sample of the corpus, the surest first: "
                "log-odds with a Dirichlet prior, and how often the selection holds the word.",
            ),
            bars(shown),
        ]
    )


def highlighted(text: str, matched: set[str]) -> Html:
    """Returns the text with the matched words marked."""
    made: list[Any] = []
    end = 0
    for match in word_pattern().finditer(text):
        if match.group().lower() in matched:
            made += [text[end : match.start()], el("mark", match.group())]
            end = match.end()
    return joined([*made, text[end:]])


def matched_words(passages: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    """Returns for each passage the words to mark: those given, else those shared with what asked for it.

    Words that half of the shown passages hold are the language's, not the task's; they are left unmarked.
    """
    holding = Counter(word for entry in passages for word in set(words(str(entry.get("text", "")))))
    usual = {word for word, count in holding.items() if len(passages) >= 4 and 2 * count >= len(passages)}
    made = []
    for entry in passages:
        if entry.get("matched"):
            made.append({str(word).lower() for word in entry["matched"]})
            continue
        asked = {word for query in entry.get("asked_by") or () for word in words(str(query))}
        made.append((asked & set(words(str(entry.get("text", ""))))) - usual)
    return made


def _explanation() -> Html:
    about = "Marked: words shared with the task examples that asked for the passage (the most common words are not marked)."
    return el("p", about, class_="soft")


def _cards(passages: Sequence[Mapping[str, Any]]) -> list[Html]:
    made = []
    for entry, matched in zip(passages, matched_words(passages), strict=True):
        known = [name for name in ("id", "source", "score", "rank") if entry.get(name) not in (None, "")]
        facts = [f"{name} {_short(entry[name])}" for name in known]
        asked = [str(query) for query in entry.get("asked_by") or ()]
        text = el("p", highlighted(clipped(entry.get("text", ""), TEXT_LENGTH), matched), class_="text", dir="auto")
        queries = escaped("")
        if asked:
            more = "" if len(asked) <= 3 else f", 3 of {len(asked):,} shown"
            queries = folded(
                f"asked for by {len(asked):,} task example{'s' if len(asked) > 1 else ''}{more}",
                *(passage(query, QUERY_LENGTH) for query in asked[:3]),
            )
        made.append(el("div", el("div", " · ".join(facts), class_="soft"), text, queries, class_="card"))
    return made


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else clipped(value, 120)
