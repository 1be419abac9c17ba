"""Text without labels for kinds that write: texts like the sources, whatever stands beside them.

Selected passages are near to sources and to targets, of a translation in two languages. A text is
left out if its words speak clearly for the targets: naive Bayes on counts in the training pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from tasklm.corpus.words import count_words, words
from tasklm.tasks.examples import Example

LONG_SOURCE = 40  # words: texts that are usually as long are more than a sentence
CLEARLY = log(20.0)  # odds for the targets beyond which a text is none like the sources


@dataclass(frozen=True)
class Sides:
    """How often words stand in sources and in targets."""

    sources: Counter[str]
    targets: Counter[str]

    @classmethod
    def of(cls, train: Sequence[Example]) -> Sides:
        """Those of training pairs."""
        pairs = [example.texts for example in train]
        return cls(
            Counter(word for source, _ in pairs for word in words(source)),
            Counter(word for _, target in pairs for word in words(target)),
        )

    def odds(self, text: str) -> float:
        """The logarithmic odds that a text is a source rather than a target, counts plus one."""
        types = len(self.sources.keys() | self.targets.keys()) + 1
        sizes = log(self.targets.total() + types) - log(self.sources.total() + types)
        return sum(
            log(self.sources[word] + 1) - log(self.targets[word] + 1) + sizes
            for word in words(text)
        )


def sources_alone(
    train: Sequence[Example], pieces: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    """The numbered pieces of text that may be sources."""
    sides = Sides.of(train)
    return ((number, text) for number, text in pieces if sides.odds(text) > -CLEARLY)


def are_sentences(train: Sequence[Example]) -> bool:
    """Whether sources are mostly single sentences, by their length."""
    return median(count_words(example.texts[0]) for example in train) <= LONG_SOURCE
