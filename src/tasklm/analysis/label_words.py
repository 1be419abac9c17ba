"""The words that indicate a label, and whether the selection has more of them than the corpus.

"Farewell to Aimless Large-scale Pretraining: Influential Subset Selection for Language Model"
(arXiv 2305.12816), section 6.2 and table 6: words with a high pointwise mutual information with a
label, and their frequency in the text that was selected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from tasklm.analysis.word_counts import counted
from tasklm.corpus.words import words

SHOWN = 10  # words of a label
MOST_LABELS = 50  # with the most examples
LEAST, LEAST_SHARE = (
    5,
    0.001,
)  # examples that must contain a word: at least this many, and this share
MILLION = 1e6


def label_words(
    texts: Sequence[str], labels: Sequence[str], selected: Iterable[str], corpus: Iterable[str]
) -> list[dict[str, Any]]:
    """For each label its most indicative words.

    [{"label", "words": [{"word", "pmi", "selected", "corpus", "examples"}]}]

    `texts` and `labels` are the training examples. "selected" and "corpus" are occurrences per
    million words of these texts, "examples" the training examples of the label that contain the
    word.
    """
    of_label = Counter(labels)
    frequent = sorted(of_label, key=lambda label: (-of_label[label], label))[:MOST_LABELS]
    typical = _by_label(texts, labels, of_label)
    wanted = {word for word, _, _ in chain.from_iterable(typical[label] for label in frequent)}
    here, there = _per_million(selected, wanted), _per_million(corpus, wanted)
    return [
        {
            "label": label,
            "words": [
                {
                    "word": word,
                    "pmi": pmi,
                    "selected": here[word],
                    "corpus": there[word],
                    "examples": examples,
                }
                for word, pmi, examples in typical[label]
            ],
        }
        for label in sorted(frequent)
    ]


def _by_label(
    texts: Sequence[str], labels: Sequence[str], of_label: Counter[str]
) -> dict[str, list[tuple[str, float, int]]]:
    """The (word, PMI, examples) of each label, highest PMI first, then those of more examples.

    PMI = ln(p(word, label) / (p(word) · p(label))) over examples: does a text contain the word, and
    does it have the label? A word of only one label has the highest possible value, −ln p(label),
    however rare it is; hence the minimum number of examples.
    """
    holding: Counter[str] = Counter()
    together: dict[str, Counter[str]] = {label: Counter() for label in of_label}
    for text, label in zip(texts, labels, strict=True):
        own = {word for word in words(text) if not word.isdigit()}
        holding.update(own)
        together[label].update(own)
    least = max(LEAST, LEAST_SHARE * len(texts))
    typical = {}
    for label, counts in together.items():
        pmi = {
            word: math.log(both * len(texts) / (holding[word] * of_label[label]))
            for word, both in counts.items()
            if holding[word] >= least
        }
        best = sorted(
            (word for word in pmi if pmi[word] > 0),
            key=lambda word: (-pmi[word], -counts[word], word),
        )
        typical[label] = [(word, pmi[word], counts[word]) for word in best[:SHOWN]]
    return typical


def _per_million(texts: Iterable[str], wanted: set[str]) -> dict[str, float]:
    counts = counted(texts)
    return {word: MILLION * counts[word] / max(1, counts.total()) for word in wanted}
