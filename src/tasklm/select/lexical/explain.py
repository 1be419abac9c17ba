"""Why a passage was found: which of its words were asked for, and what each of them added to its
score.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasklm.corpus.words import is_spaceless
from tasklm.select.lexical.index import Index, hash_terms
from tasklm.select.lexical.search import Scoring
from tasklm.select.lexical.terms import Stemmer, terms

_WORD = re.compile(r"\w+")


@dataclass
class Term:
    """One term of a query and what it adds to a passage's score."""

    term: str
    asked: int  # times in the query
    found: int  # times in the passage
    passages: int  # that have it, in the whole corpus
    adds: float


def explained(
    query: Sequence[str], passage: str, index: Index, scoring: Scoring, stem: Stemmer | None
) -> list[Term]:
    """The terms that query and passage share, what adds most first; together they are the passage's
    score.
    """
    own, asked = terms(passage, stem), Counter(query)
    counts = Counter(own)
    shared = [term for term in asked if counts[term]]
    if not shared:
        return []
    statistics = index.statistics(hash_terms(shared))
    norm = scoring.k1 * (1 - scoring.b + scoring.b * len(own) / statistics.average_length)
    idf = np.log1p(
        (statistics.passages - statistics.frequencies + 0.5) / (statistics.frequencies + 0.5)
    )
    found = [
        Term(
            term,
            asked[term],
            counts[term],
            int(df),
            asked[term] * float(weight) * counts[term] / (counts[term] + norm),
        )
        for term, weight, df in zip(shared, idf, statistics.frequencies, strict=True)
    ]
    return sorted(found, key=lambda term: (-term.adds, term.term))


def spans(text: str, asked: set[str], stem: Stemmer | None) -> list[tuple[int, int]]:
    """Where in the text the asked terms stand, as (start, end) of words or of
    pairs of characters.
    """
    found: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        word, start = match.group(), match.start()
        if not any(map(is_spaceless, word)):
            if any(term in asked for term in terms(word, stem)):
                found.append(match.span())
            continue
        for at in range(len(word)):
            pair = word[at : at + 2] if len(word) > 1 else word
            if any(term in asked for term in terms(pair, stem)):
                found.append((start + at, start + at + len(pair)))
    return found
