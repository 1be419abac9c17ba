"""Texts written without a network: the source itself, the text of the nearest training source, and
word for word with a dictionary of the training texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from tasklm.tasks.examples import Example

PASSES = 4  # over the training texts, of the dictionary
LONGEST = 60  # words of a text that it learns from
MOST_PAIRS = 20_000  # training texts that it learns from
AT_ONCE = 1024  # texts that are compared at a time


class NearestText:
    """The text of the training source that has most in common with another one (TF-IDF)."""

    def __init__(self, train: Sequence[Example]) -> None:
        self.targets = [example.texts[1] for example in train]
        self.vectors = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", sublinear_tf=True)
        self.sources = self.vectors.fit_transform([example.texts[0] for example in train])

    def of(self, sources: Sequence[str]) -> list[str]:
        """The texts for some sources."""
        texts: list[str] = []
        for first in range(0, len(sources), AT_ONCE):
            wanted = self.vectors.transform(list(sources[first : first + AT_ONCE]))
            nearest = np.asarray((wanted @ self.sources.T).argmax(1)).reshape(-1)
            texts += [self.targets[int(number)] for number in nearest]
        return texts


class Dictionary:
    """The likeliest word of the target for each word of a source: IBM's first model, learnt by
    expectation maximisation (Brown et al., "The Mathematics of Statistical Machine Translation").
    """

    def __init__(self, train: Sequence[Example]) -> None:
        some = train[:: -(-len(train) // MOST_PAIRS)]
        pairs = [tuple(text.split()[:LONGEST] for text in example.texts) for example in some]
        shares: dict[str, dict[str, float]] = {}
        for _ in range(PASSES):
            shares = _improved(pairs, shares)
        self.best = {word: max(own, key=lambda one: own[one]) for word, own in shares.items()}

    def of(self, source: str) -> str:
        """The source with the likeliest word for each of its words; unknown ones stay."""
        return " ".join(self.best.get(word, word) for word in source.split())


def _improved(
    pairs: Sequence[tuple[list[str], ...]], shares: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """How likely each word of a target follows from each of a source, after a pass."""
    counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for source, target in pairs:
        for word in target:
            parts = [shares[one].get(word, 0.0) if shares else 1.0 for one in source]
            whole = sum(parts) or 1.0
            for one, part in zip(source, parts, strict=True):
                if part:
                    counts[one][word] += part / whole
    improved = {}
    for one, own in counts.items():
        total = float(sum(own.values()))
        likely = {word: count / total for word, count in own.items() if count > 1e-3 * total}
        improved[one] = likely or dict(own)
    return improved
