"""RAKE, rapid automatic keyword extraction (Rose, Engel, Cramer and Cowley 2010): the phrases that
carry a text.

A candidate phrase is a longest run of words between stop words and punctuation. In the graph of
words that stand in one phrase together, a word scores degree / frequency (so words of long phrases
score high) and a phrase the sum of its words. Any language works that has a stop list; without one
only punctuation ends a phrase, so phrases grow long and whole clauses win: callers should then pass
the most common words of their texts (`queries.make_queries` does).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from tasklm.corpus.words import folded, words

# Hyphens and apostrophes inside a word do not end a phrase, and a line end inside a paragraph is
# only a space.
_INSIDE = "'’‐-"
_BOUNDARY = "\0"
_ENDS = re.compile(rf"\0|\n\s*\n|(?<![^\s\0])[{_INSIDE}]+|[{_INSIDE}]+(?![^\s\0])")


class _Boundaries(dict[int, str]):
    """Code point → itself, or a boundary for punctuation and symbols of any script; filled when
    first met.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        ends = unicodedata.category(character)[0] in "PS" and character not in _INSIDE
        self[code] = _BOUNDARY if ends else character
        return self[code]


_boundaries = _Boundaries()


def key_phrases(text: str, stop_words: frozenset[str], most: int) -> list[str]:
    """The text's best phrases, folded and each once, best first; equal scores in the order of the
    text.
    """
    scores = phrase_scores(text, stop_words)
    best_first = sorted(scores, key=lambda phrase: -scores[phrase])
    return best_first[:most]  # stable: ties keep the order of the text


def phrase_scores(text: str, stop_words: frozenset[str]) -> dict[str, float]:
    """Every candidate phrase with its score, in the order of the text."""
    phrases = _candidates(text, stop_words)
    frequency: Counter[str] = Counter()
    degree: Counter[str] = Counter()
    for phrase in phrases:
        for word in phrase:
            frequency[word] += 1
            degree[word] += len(phrase)
    return {
        " ".join(phrase): sum(degree[word] / frequency[word] for word in phrase)
        for phrase in phrases
    }


def _candidates(text: str, stop_words: frozenset[str]) -> list[tuple[str, ...]]:
    phrases: list[tuple[str, ...]] = []
    for piece in _ENDS.split(folded(text).translate(_boundaries)):
        run: list[str] = []
        for word in [*words(piece), ""]:  # the empty word ends the last run
            if word and word not in stop_words:
                run.append(word)
            elif run:
                phrases.append(tuple(run))
                run = []
    return phrases
