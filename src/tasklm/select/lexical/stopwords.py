"""Stop words by language, from the short lists bundled in `stopword_lists/`, and a guess of a
text's language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from tasklm.corpus.words import words
from tasklm.errors import RecipeError
from tasklm.registry import nearest

_LEAST_COVERAGE = (
    0.1  # running text is 30-50 % stop words; below this share it is not that language
)
_SAMPLE_WORDS = 50_000


def stop_words(languages: str, sample: Sequence[str]) -> frozenset[str]:
    """The stop words of the languages named ('en,de'), none for 'none', those that the sample needs
    for 'auto'.
    """
    wanted = [name.strip().lower() for name in languages.split(",") if name.strip()]
    if wanted in ([], ["none"]):
        return frozenset()
    if wanted == ["auto"]:
        wanted = guess_languages(sample)
    known = known_languages()
    unknown = [
        f"no stop list for {name!r}{nearest(name, known)}" for name in wanted if name not in known
    ]
    if unknown:
        choices = f"choose none, auto, or from {', '.join(known)}"
        raise RecipeError(
            [f"select.stop_words: there is {problem}; {choices}" for problem in unknown]
        )
    return frozenset[str]().union(*(_list(name) for name in wanted))


def known_languages() -> list[str]:
    """The codes of the languages that have a list."""
    return sorted(
        entry.name.removesuffix(".txt")
        for entry in _folder().iterdir()
        if entry.name.endswith(".txt")
    )


def guess_languages(sample: Sequence[str]) -> list[str]:
    """The languages of the sample: the list that covers most words, then those that cover 10 % more
    of them.
    """
    counts = _counts(sample)
    total = counts.total()
    languages: list[str] = []
    while total:
        coverage = {name: sum(counts[word] for word in _list(name)) for name in known_languages()}
        best = max(coverage, key=lambda name: (coverage[name], name))
        if coverage[best] < _LEAST_COVERAGE * total:
            break
        languages.append(best)
        for word in _list(best):  # words covered by one list are no evidence for related languages
            del counts[word]
    return languages


def _counts(sample: Sequence[str]) -> Counter[str]:
    """Counts words in texts spread evenly over the sample, up to a fixed number."""
    counts: Counter[str] = Counter()
    seen = 0
    for text in sample[:: max(1, len(sample) // 1000)]:
        own = words(text[:10_000])
        counts.update(own)
        seen += len(own)
        if seen >= _SAMPLE_WORDS:
            break
    return counts


@cache
def _list(name: str) -> frozenset[str]:
    text = (_folder() / f"{name}.txt").read_text(encoding="utf-8")
    return frozenset(words(text))  # split like all text: "l'" becomes "l"


def _folder() -> Traversable:
    return files("tasklm.select.lexical") / "stopword_lists"
