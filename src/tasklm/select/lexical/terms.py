"""The terms of search: the words of a text, pairs of characters for scripts without spaces, and
stems if requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

from tasklm.corpus.words import is_spaceless, words
from tasklm.errors import RecipeError, RunError

_REMEMBERED = 1 << 18  # stems kept by a Stemmer


def terms(text: str, stem: Callable[[str], str] | None = None) -> list[str]:
    """The terms of a text, in order.

    Neighbouring characters of a script without spaces (Han, Kana, Thai …) become overlapping pairs,
    as search engines do: single characters are in nearly every passage, and finding real words
    would need a dictionary.
    """
    own = words(text)
    if not text.isascii() and any(len(word) == 1 and is_spaceless(word) for word in own):
        pieces = text.split()  # a space separates neighbours
        own = list(chain.from_iterable(_paired(words(piece)) for piece in pieces))
    if stem is None:
        return own
    return [stem(term) for term in own]


def _paired(tokens: Sequence[str]) -> list[str]:
    result: list[str] = []
    run: list[str] = []
    for word in [*tokens, ""]:  # the empty word ends the last run
        if len(word) == 1 and is_spaceless(word):
            run.append(word)
            continue
        if len(run) > 1:
            run = [one + other for one, other in pairwise(run)]
        result += run
        run = []
        if word:
            result.append(word)
    return result


class Stemmer:
    """Cuts words to their stems (Snowball), remembering those it has seen."""

    def __init__(self, language: str) -> None:
        self._stem, self._known = _snowball(language), dict[str, str]()

    def __call__(self, word: str) -> str:
        stem = self._known.get(word)
        if stem is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            stem = self._known[word] = self._stem(word)
        return stem


def stemmer(language: str) -> Stemmer | None:
    """The stemmer of a language named in English, or None for "none"."""
    if language == "none":
        return None
    return Stemmer(language)


def _snowball(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError:
        raise RunError(
            "select.stemming needs the package snowballstemmer. "
            "Install it: pip install 'tasklm[stemming]'"
        ) from None
    if language not in snowballstemmer.algorithms():
        known = ", ".join(sorted(snowballstemmer.algorithms()))
        raise RecipeError(
            [f"select.stemming: there is no stemmer for {language!r}; choose from none, {known}"]
        )
    snowball: Any = snowballstemmer.stemmer(language)
    stem: Callable[[str], str] = snowball.stemWord
    return stem
