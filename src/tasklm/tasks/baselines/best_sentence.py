"""The sentence of a text that shares most with a question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from tasklm.corpus.words import words
from tasklm.tasks.examples import Example

_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?](?=\S))+[.!?。！？]*")


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text, as punctuation and line ends part them."""
    return filter(None, map(str.strip, _SENTENCE.findall(text)))


def word_weights(train: Sequence[Example]) -> dict[str, float]:
    """The inverse document frequencies of words over the texts of train; that of "" is for unknown
    words.
    """
    contexts = {example.texts[1] for example in train}
    held = Counter(chain.from_iterable(set(words(context)) for context in sorted(contexts)))
    return {
        word: math.log((1 + len(contexts)) / (1 + count)) + 1
        for word, count in [*held.items(), ("", 0)]
    }


def best_sentence(example: Example, weights: Mapping[str, float]) -> str:
    """The sentence of the text with the largest weight of words shared with the question; the first
    in a tie.
    """
    question = set(words(example.texts[0]))

    def weight(sentence: str) -> float:
        shared = sorted(question.intersection(words(sentence)))
        return sum(weights.get(word, weights[""]) for word in shared)

    return max(sentences(example.texts[1]), key=weight, default="")
