"""The most frequent tag of each word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tasklm.tasks.examples import Example

SUFFIX = 3


class UsualTags:
    """The most frequent tag of each word in train; for unknown words that of its last three
    letters, else of all words.
    """

    def __init__(self, train: Sequence[Example]) -> None:
        words: dict[str, Counter[str]] = defaultdict(Counter)
        endings: dict[str, Counter[str]] = defaultdict(Counter)
        overall: Counter[str] = Counter()
        for example in train:
            for word, tag in zip(example.words, example.label, strict=True):
                words[word][tag] += 1
                endings[word[-SUFFIX:]][tag] += 1
                overall[tag] += 1
        self._words, self._endings = _usual(words), _usual(endings)
        self.overall = _most(overall)

    def of(self, word: str) -> str:
        """The tag of a word."""
        return self._words.get(word) or self._endings.get(word[-SUFFIX:]) or self.overall


def _most(counts: Counter[str]) -> str:
    """The most frequent tag; the alphabetically first in a tie."""
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _usual(counts: Mapping[str, Counter[str]]) -> dict[str, str]:
    return {key: _most(of_key) for key, of_key in counts.items()}
