"""Why a passage was retrieved: which of its words matched, and what each of them added to its
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
    in_query: int  # how often
    in_passage: int  # how often
    passages: int  # that have it, in the whole corpus
    adds: float


def explained(
    query: Sequence[str], passage: str, index: Index, scoring: Scoring, stem: Stemmer | None
) -> list[Term]:
    """The terms that query and passage share, the largest contribution first; they sum to the
    passage's score.
    """
    own, in_query = terms(passage, stem), Counter(query)
    counts = Counter(own)
    shared = [term for term in in_query if counts[term]]
    if not shared:
        return []
    statistics = index.statistics(hash_terms(shared))
    norm = scoring.k1 * (1 - scoring.b + scoring.b * len(own) / statistics.average_length)
    idf = np.log1p(
        (statistics.passages - statistics.frequencies + 0.5) / (statistics.frequencies + 0.5)
    )
    explanations = [
        Term(
            term,
            in_query[term],
            counts[term],
            int(df),
            in_query[term] * float(weight) * counts[term] / (counts[term] + norm),
        )
        for term, weight, df in zip(shared, idf, statistics.frequencies, strict=True)
    ]
    return sorted(explanations, key=lambda term: (-term.adds, term.term))


def spans(text: str, wanted: set[str], stem: Stemmer | None) -> list[tuple[int, int]]:
    """The positions of the wanted terms, as (start, end) of words or pairs of characters."""
    places: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        word, start = match.group(), match.start()
        if not any(map(is_spaceless, word)):
            if any(term in wanted for term in terms(word, stem)):
                places.append(match.span())
            continue
        for at in range(len(word)):
            pair = word[at : at + 2]
            if any(term in wanted for term in terms(pair, stem)):
                places.append((start + at, start + at + len(pair)))
    return places
