"""The words of a selected passage that match the task example that retrieved it, by
BM25's terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tasklm.analysis.word_counts import word_pattern
from tasklm.corpus.words import is_spaceless
from tasklm.recipe.data_sections import Select
from tasklm.select.lexical.queries import make_queries
from tasklm.select.lexical.terms import Stemmer, stemmer, terms

COMMON = 0.1  # of the passages: more frequent terms say too little to be shown
MOST_TEXTS = 1000  # of the task, besides the queries: to guess the language of stop words


def matching_words(
    passages: Sequence[str],
    askers: Sequence[str],
    settings: Select,
    task: Sequence[str] = (),
    sample: Iterable[str] = (),
) -> list[list[str]]:
    """For each passage the words shared with the first task example that retrieved it, in order.

    They are lower-cased and split as `analyse.words` splits them; each occurs once. `task` are
    texts of the task, `sample` passages of the corpus: terms that occur in more than a tenth of
    these are left out. Stop words, key phrases and stems are as `settings` say.
    """
    stem = stemmer(settings.stemming)
    step = max(1, len(task) // MOST_TEXTS)
    queries = make_queries([*askers, *task[::step]], settings)[: len(askers)]
    usual = _usual(sample, stem)
    return [
        _shared(passage, set(query) - usual, stem)
        for passage, query in zip(passages, queries, strict=True)
    ]


def _usual(sample: Iterable[str], stem: Stemmer | None) -> set[str]:
    holding: Counter[str] = Counter()
    passages = 0
    for passage in sample:
        holding.update(set(terms(passage, stem)))
        passages += 1
    return {term for term, count in holding.items() if count > COMMON * passages}


def _shared(text: str, query: set[str], stem: Stemmer | None) -> list[str]:
    """The words of a text that are terms of a query; without spaces, the characters of pairs."""
    matches = list(word_pattern().finditer(text))
    shared: dict[str, None] = {}
    in_pair = False  # with the word before
    for match, after in zip(matches, [*matches[1:], None], strict=True):
        word = match.group()
        if (
            after is not None
            and after.start() == match.end()
            and is_spaceless(word[0])
            and is_spaceless(after.group()[0])
        ):
            if query.intersection(terms(word + after.group(), stem)):
                shared |= dict.fromkeys((word.lower(), after.group().lower()))
            in_pair = True
            continue
        if not in_pair and query.intersection(terms(word, stem)):
            shared[word.lower()] = None
        in_pair = False
    return list(shared)
