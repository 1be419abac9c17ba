"""Task texts → queries: the words of the whole text, or of its RAKE key phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from tasklm.corpus.words import words
from tasklm.recipe.data_sections import Select
from tasklm.select.lexical.rake import key_phrases
from tasklm.select.lexical.stopwords import stop_words
from tasklm.select.lexical.terms import Stemmer, stemmer, terms

# fallback for RAKE: a word in at least this share of the texts counts as a stop word
_COMMON_SHARE = 0.1
_COMMON_MOST = 100


def make_queries(texts: Sequence[str], settings: Select) -> list[list[str]]:
    """The terms of each text's query, in order, repeated ones kept; equal terms share one object.

    Stop words are removed only if the recipe says so. RAKE needs them to find the ends of phrases:
    with stop_words = none it guesses the language only for that purpose, and for a language without
    a list it uses the most common words of the task's own texts (those in 10 % of them, 100 at
    most).
    """
    removed = stop_words(settings.stop_words, texts)
    shared: dict[str, str] = {}
    stem = stemmer(settings.stemming)
    if settings.queries == "text":
        return [
            [shared.setdefault(term, term) for term in _asked(text, removed, stem)]
            for text in texts
        ]
    boundaries = removed or stop_words("auto", texts) or _common_words(texts)
    queries: list[list[str]] = []
    for text in texts:
        phrases = " ".join(key_phrases(text, boundaries, settings.phrases))
        queries.append([shared.setdefault(term, term) for term in _asked(phrases, removed, stem)])
    return queries


def _asked(text: str, removed: frozenset[str], stem: Stemmer | None) -> list[str]:
    """The terms of a text without the stop words, which are known by their unstemmed form."""
    own = [term for term in terms(text) if term not in removed]
    if stem is None:
        return own
    return [stem(term) for term in own]


def _common_words(texts: Sequence[str]) -> frozenset[str]:
    holders = Counter(chain.from_iterable(set(words(text)) for text in texts))
    least = max(2, _COMMON_SHARE * len(texts))
    common = [word for word, count in holders.items() if count >= least]
    return frozenset(sorted(common, key=lambda word: (-holders[word], word))[:_COMMON_MOST])
