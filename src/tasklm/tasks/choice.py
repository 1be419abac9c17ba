"""A text, a question and some options → the right one: a score per option, a softmax over them
(RACE, arXiv 1704.04683).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.corpus.words import words
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import OptionSets
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Label,
    LabelsAlone,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
)
from tasklm.tasks.baselines.option_words import filled, has_blank
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.baselines.wide_fitting import FittedWide, fit_options
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.metrics import option_metric
from tasklm.tasks.readers.choice_files import MOST_OPTIONS, read_choices, sheet_of_choices
from tasklm.tasks.readers.columns import needs_columns
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.readers.texts import cut, joined
from tasklm.tasks.rivals import Rivals, likeliest
from tasklm.tasks.saved import whole_in

if TYPE_CHECKING:
    from torch import Tensor, nn


@TASKS.register("choice")
class Choice(LabelsAlone, Untuned):
    """One of up to `together` options; the label is the number of the right one, from 0.

    Every example has `together` units, one per option: [CLS] text [SEP] question [SEP] option
    [SEP], or, if the question has a blank, the question with the option in it. If an example has
    fewer options the last units are empty, and the loss ignores them. Targets are (the right
    option, the number of options); the first of them is NONE except for the first unit of an
    example.
    """

    kind: ClassVar[str] = "choice"
    classifies, pairs, cased = False, False, False
    reads_vectors = False
    unsmoothed = "options differ from example to example and are no classes"
    incomparable = unranked = ""
    sets, setless = OptionSets(), ""
    labels_alone = "raw text has no question with options"
    metrics: tuple[str, ...] = ("accuracy",)
    packs: bool = True
    wide_width = 1

    def __init__(self, together: int) -> None:
        self.together = int(together)
        self.labels: list[str] = []

    @property
    def elsewhere(self) -> Elsewhere:
        """The equivalent in other programs: multiple choice."""
        rows = (
            f"An example is one row per option, at most "
            f"{self.together}: the text, and as its second text question [SEP] option"
        )
        blank = (
            "or, where the question has one blank (_), the question with the option in its place"
        )
        meaning = (
            f"{rows}, {blank}. The softmax over the logits of its rows gives the probabilities."
        )
        return Elsewhere("multiple-choice", "ForMultipleChoice", meaning)

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The examples of a table, or of RACE's JSON files, and notes."""
        return read_choices(path, data, labelled)

    @classmethod
    def sheet(cls, path: Path, data: Data) -> SheetColumns:
        """The columns of a table, or the usual ones."""
        return sheet_of_choices(path, data)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Choice:
        """The task with the largest number of options in train."""
        return cls(max(len(example.options) for example in train))

    def example_of(self, text: str) -> Example:
        """Raises: a text alone is not a question."""
        raise needs_columns("question and options")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Choice:
        """The task that `to_dict` described."""
        return cls(whole_in(values, "options", 1, MOST_OPTIONS))

    def to_dict(self) -> dict[str, Any]:
        """The kind and the largest number of options."""
        return {"kind": self.kind, "options": self.together}

    def audit(self, splits: Splits) -> list[Finding]:
        """The number of options, whether it varies, and repeated options of a question."""
        findings = []
        for name, part in splits.named().items():
            counts = sorted(Counter(len(example.options) for example in part).items())
            sizes = ", ".join(f"{examples:,} with {options}" for options, examples in counts)
            if counts[-1][0] > self.together:
                way_out = (
                    f"those of train have at most {self.together}. Remove options, or add "
                    "training examples with as many."
                )
                findings.append(
                    Finding(
                        "error",
                        "options",
                        f"examples of {name} have too many options ({sizes}); {way_out}",
                    )
                )
            elif len(counts) > 1:
                way_out = "Chance level differs between them; check that no option was lost."
                brief = f"the number of options varies in {name}: check that none was lost"
                message = f"the number of options varies in {name}: {sizes}. {way_out}"
                findings.append(Finding("warning", "options", message, brief=brief))
            twice = [
                example for example in part if len(set(example.options)) < len(example.options)
            ]
            if twice:
                message = (
                    f"{len(twice):,} of the {len(part):,} examples of "
                    f"{name} have the same option twice. Correct or delete them."
                )
                repeated = tuple(
                    f"{example.file}, line {example.line}: {', '.join(map(repr, example.options))}"
                    for example in twice[:3]
                )
                brief = (
                    f"{len(twice):,} examples of {name} have a repeated option: correct or delete "
                    "them"
                )
                findings.append(Finding("warning", "repeated options", message, repeated, brief))
        return findings or [
            Finding("ok", "options", f"every example has {self.together} different options.")
        ]

    def classes(self, label: Label) -> list[str]:
        """Empty: an option belongs to its example."""
        return []

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """The `together` units of each example; a text that is too long is cut before its question
        and option are.
        """
        shared = [
            example.texts[: len(example.texts) - len(example.options)] for example in examples
        ]
        before = iter(tokeniser.encode(list(chain.from_iterable(shared))))
        options = [
            filled(texts, example.options) for texts, example in zip(shared, examples, strict=True)
        ]
        after = iter(tokeniser.encode(list(chain.from_iterable(options))))
        units = []
        for number, example in enumerate(examples):
            count = len(example.options)
            if count > self.together:
                problem = (
                    f"the question has {count} options, but those of train have at most "
                    f"{self.together}"
                )
                raise DataError(
                    problem, file=example.file, line=example.line, remedy="Remove some options."
                )
            parts = list(islice(before, len(shared[number])))
            if has_blank(shared[number]):
                parts = parts[:-1]  # its options come with the question
            rows = [
                joined(_fitted([*parts, option], length), tokeniser)
                for option in islice(after, count)
            ]
            rows += [
                Unit([tokeniser.cls, tokeniser.sep], [0], None)
                for _ in range(self.together - count)
            ]
            for unit in rows:
                unit.example = number
                if example.label is not None:
                    unit.targets = np.array([[NONE, count]], np.int64)
            if example.label is not None:
                rows[0].targets = np.array([[example.label, count]], np.int64)
            units += rows
        return units

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head with one output: the score of an option."""
        from tasklm.tasks.heads.layers import TokenHead

        return TokenHead(width, 1, dropout, normed)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy over the options of each example, summed over examples."""
        from tasklm.tasks.heads.losses import cross_entropy, option_scores

        right = targets.reshape(-1, self.together, 2)[:, 0, 0]
        return cross_entropy(option_scores(outputs, targets, self.together), right)

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy against the teachers' probabilities of the options, summed."""
        from tasklm.tasks.heads.losses import option_scores
        from tasklm.tasks.heads.soft_losses import soft_cross_entropy

        right = targets.reshape(-1, self.together, 2)[:, 0, 0]
        scores, wanted = (option_scores(one, targets, self.together) for one in (outputs, taught))
        return soft_cross_entropy(scores, wanted, right != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        """The logits themselves."""
        return np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        """The number of examples."""
        return int((targets[..., 0] != NONE).sum())

    def keep(self, outputs: Floats) -> Any:
        """The score of an option."""
        return float(outputs[0, 0])

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """Answers: {"option": its text, "number": from 0, "probabilities": of all options}."""
        scores = np.array(predictions, np.float64).reshape(len(examples), self.together)
        answers = []
        for example, row in zip(examples, scores, strict=True):
            own = row[: len(example.options)]
            odds = np.exp(own - own.max())
            best = int(own.argmax())
            answers.append(
                {
                    "option": example.options[best],
                    "number": best,
                    "probabilities": (odds / odds.sum()).tolist(),
                }
            )
        return answers

    def label_of(self, answer: Answer) -> Label:
        """The number of the option."""
        return int(answer["number"])

    def rivals(self, answer: Answer) -> Rivals:
        """The two likeliest options, counted from 1."""
        named = {f"option {n}": odds for n, odds in enumerate(answer["probabilities"], 1)}
        return likeliest(named)

    def metric(self, name: str) -> Metric:
        """The accuracy."""
        return option_metric(name)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Wide | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """Three baselines: the most frequently right option, the one that shares the most weighted
        words with text and question, and a linear model of such words.
        """
        counts = Counter(example.label for example in train)
        ranked = sorted(range(self.together), key=lambda number: (-counts[number], number))
        usual = {
            name: [
                next(number for number in ranked if number < len(example.options))
                for example in part
            ]
            for name, part in held.items()
        }
        weights = _word_weights(train)
        overlap = {
            name: [_most_in_common(example, weights) for example in part]
            for name, part in held.items()
        }
        linear = labels_by(wide, self, held) or usual
        return {
            "most frequent option": usual,
            "most words in common": overlap,
            "words in common + linear": linear,
        }

    def fit_wide(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: str,
        vectors: WordVectors | None = None,
    ) -> FittedWide | None:
        """Fits a linear model of the words that options share with text and question."""
        return fit_options(train, dev, self.metric(metric), self.together)


def _fitted(parts: list[list[int]], length: int) -> list[list[int]]:
    """The parts in `length` tokens with special ones: the first is cut first, then the longest of
    the others.
    """
    budget = length - 1 - len(parts)
    if len(parts) == 1:
        return cut(parts, budget)
    others = cut(parts[1:], budget)
    return [parts[0][: budget - sum(map(len, others))], *others]


def _word_weights(train: Sequence[Example]) -> dict[str, float]:
    """The inverse document frequency of words in the texts and options of train; unknown words have
    the highest.
    """
    texts = set(chain.from_iterable(example.texts for example in train))
    counts = Counter(chain.from_iterable(set(words(text)) for text in texts))
    return defaultdict(
        lambda: math.log(1 + len(texts)),
        {word: math.log((1 + len(texts)) / count) for word, count in counts.items()},
    )


def _most_in_common(example: Example, weights: Mapping[str, float]) -> int:
    context = set(chain.from_iterable(map(words, example.texts[: -len(example.options)])))
    shared = [
        math.fsum(weights[word] for word in set(words(option)) & context)
        for option in example.options
    ]
    return max(range(len(shared)), key=lambda number: (shared[number], -number))
