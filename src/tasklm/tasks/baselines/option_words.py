"""Features of what the options of a choice share with their text and question, for linear models.

Words count by their first letters, a stem in most languages, and rarer words weigh more. If a
question has a blank, the option fills it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tasklm.corpus.words import words
from tasklm.tasks.base import Floats
from tasklm.tasks.baselines.pair_words import bigrams
from tasklm.tasks.examples import Example

STEM = 5  # letters of a word that count
WINDOWS = (0, 5, 25)  # words around question and option in which their words are looked for
TELLING = 1.5  # weight above which a word locates something in the text
MEASURES = 3 * 19  # of an option: by itself, against the best, against the mean
LONG = 9  # words of an option; longer ones count as so long
_BLANK = re.compile("_+")
_SENTENCE = re.compile(r"[.!?;\n\u3002\uff01\uff1f]+")


def has_blank(texts: Sequence[str]) -> bool:
    """Whether the question, the last of the texts before the options, has one blank (underscores)
    to be filled.
    """
    return bool(texts) and len(_BLANK.findall(texts[-1])) == 1


def filled(texts: Sequence[str], options: Sequence[str]) -> list[str]:
    """The text of each option for a model: the question with the option in its blank, or the option
    itself.
    """
    if not has_blank(texts):
        return list(options)
    left, right = _BLANK.split(texts[-1])
    return [" ".join(f"{left} {option} {right}".split()) for option in options]


def before_options(example: Example) -> tuple[str, ...]:
    """The texts of a choice before its options."""
    return example.texts[: len(example.texts) - len(example.options)]


def stems(text: str) -> list[str]:
    """The beginnings of the words of a text."""
    return [word[:STEM] for word in words(text)]


def stem_weights(train: Sequence[Example]) -> dict[str, float]:
    """The weight of each stem in the texts of train: the logarithm of how rare it is."""
    texts = set(itertools.chain.from_iterable(before_options(example)[:1] for example in train))
    counts = Counter(itertools.chain.from_iterable(set(stems(text)) for text in texts))
    return {stem: math.log((1 + len(texts)) / (0.5 + count)) for stem, count in counts.items()}


def option_tokens(example: Example) -> list[list[str]]:
    """The words and word pairs of each option, by themselves and with the question's first word."""
    question = words(" ".join(before_options(example)[-1:]))
    asks = question[0] if question else ""
    each = []
    for option in example.options:
        single = words(option)
        length = f"length={min(LONG, len(single))}"
        each.append(
            [
                *single,
                *bigrams(single),
                *(f"{asks}? {word}" for word in single),
                length,
                f"{asks}? {length}",
            ]
        )
    return each


class Evidence:
    """How well options fit their text and question, by words; remembers the last text."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights, self.rarest = weights, max(weights.values(), default=1.0)
        self._passage = _Passage("", self._weight)

    def measures(self, example: Example) -> Floats:
        """The measures of each option, then how far each is below the best and from the mean."""
        before = before_options(example)
        text, question = "\n".join(before[:-1]) or "\n".join(before), "\n".join(before[-1:])
        if self._passage.text != text:
            self._passage = _Passage(text, self._weight)
        question_stems = stems(_BLANK.sub(" ", question))
        statements = filled(before, example.options)
        if not has_blank(before):
            statements = [f"{question} {option}" for option in example.options]
        pairs = zip(example.options, statements, strict=True)
        own = np.array(
            [
                self._of(stems(option), stems(statement), question_stems)
                for option, statement in pairs
            ]
        )
        return np.concatenate([own, own - own.max(0), own - own.mean(0)], axis=1)

    def _weight(self, stem: str) -> float:
        return self.weights.get(stem, self.rarest)

    def _sum(self, some: set[str]) -> float:
        return math.fsum(map(self._weight, some))

    def _of(
        self, option: list[str], statement: list[str], question_stems: list[str]
    ) -> list[float]:
        passage, own, question = self._passage, set(option), set(question_stems)
        both, new = own | question, own - question
        whole, news, all_of = (self._sum(some) or 1.0 for some in (own, new, both))
        there = self._sum(own & passage.present)
        of_own, of_question = passage.weights_of(own), passage.weights_of(question)
        of_both = np.maximum(of_own, of_question)
        windows = [best_window(of_both, len(statement) + more) / all_of for more in WINDOWS]
        sentences, around = passage.sentences_for(of_question)
        return [
            there / whole,
            there / 10,
            self._sum(new & passage.present) / news,
            *windows,
            windows[1] * all_of / 20,
            best_window(of_own, len(option) + 3) / whole,
            passage.best_sentence(of_both) / all_of,
            self._sum(own & around) / whole,
            self._sum(own & sentences) / whole,
            _share(bigrams(statement), passage.pairs),
            _share(bigrams(option), passage.pairs),
            _share(_trigrams(statement), passage.triples),
            _distance(of_own, of_question),
            float(bool(option) and f" {' '.join(option)} " in passage.joined),
            math.log1p(float(of_own.sum()) / whole),
            len(option) / 10,
            math.log1p(len(option)),
        ]


class _Passage:
    """A text, ready to be searched for words."""

    def __init__(self, text: str, weight: Callable[[str], float]) -> None:
        self.text = text
        self.sentences = [
            list(sentence) for part in _SENTENCE.split(text) if (sentence := stems(part))
        ]
        flat = list(itertools.chain.from_iterable(self.sentences))
        self.present, self.joined = set(flat), f" {' '.join(flat)} "
        self.pairs, self.triples = set(bigrams(flat)), set(_trigrams(flat))
        self._numbers = {stem: number for number, stem in enumerate(dict.fromkeys(flat))}
        self._ids = np.array([self._numbers[stem] for stem in flat], np.int64)
        self._weights = np.array([weight(stem) for stem in flat], np.float64)
        sizes = [len(sentence) for sentence in self.sentences]
        self._sentence = np.repeat(np.arange(len(sizes)), sizes)
        self._once = np.zeros(len(flat), bool)  # the first time that a stem stands in its sentence
        self._once[
            np.unique(self._sentence * (1 + len(self._numbers)) + self._ids, return_index=True)[1]
        ] = True

    def weights_of(self, some: set[str]) -> Floats:
        """The weight of each word of the text that is one of these; 0 for the others."""
        chosen = np.zeros(len(self._numbers) + 1)
        chosen[[self._numbers.get(stem, -1) for stem in some]] = 1.0
        chosen[-1] = 0.0
        return np.asarray(chosen[self._ids] * self._weights, np.float64)

    def best_sentence(self, weights: Floats) -> float:
        """The weight of the sentence that has the most, each word of it counted once."""
        return float(np.bincount(self._sentence, weights * self._once, 1).max())

    def sentences_for(self, weights: Floats) -> tuple[set[str], set[str]]:
        """The stems of the sentence with the most weight; of the two with the most and their
        neighbours.
        """
        if not self.sentences:
            return set(), set()
        best = np.argsort(-np.bincount(self._sentence, weights), kind="stable")[:2].tolist()
        around: set[str] = set()
        for one in best:
            for sentence in self.sentences[max(0, one - 1) : one + 2]:
                around.update(sentence)
        return set(self.sentences[best[0]]), around


def best_window(weights: Floats, size: int) -> float:
    """The largest sum of a window of adjacent weights."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    size = min(size, len(weights))
    return float((sums[size:] - sums[: len(sums) - size]).max())


def _distance(own: Floats, question: Floats) -> float:
    """The distance between informative words of an option and of the question, as a share of the
    text; 1 if either has none.
    """
    mine, theirs = np.flatnonzero(own > TELLING), np.flatnonzero(question > TELLING)
    if not len(mine) or not len(theirs):
        return 1.0
    return float(np.abs(mine[:, None] - theirs).min(1).mean() / len(own))


def _trigrams(tokens: Sequence[str]) -> list[str]:
    return [" ".join(tokens[at : at + 3]) for at in range(len(tokens) - 2)]


def _share(some: Sequence[str], present: set[str]) -> float:
    return sum(one in present for one in some) / max(1, len(some))
