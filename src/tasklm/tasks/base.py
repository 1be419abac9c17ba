"""The interface of a kind of task, so that selection, training, scoring and serving work for all
kinds.

One file per kind defines how its files are read, its labels, head, loss, decoding, metrics and
baselines. The path of an example:

    file ─ read ─ Example ─ encode ─ Unit(s): tokens, the places that the head reads, targets there
                                        └ encoder ─ head ─ outputs, one row per place ─ loss
                                                              └ keep ─ answers ─ label_of ─ metric

What computes with tensors (`heads/`, `consistency/`) is imported in the methods that need it: a
linear model or an ONNX file answers without PyTorch, whose import alone takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.registry import Registry
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.rivals import Rivals

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.answer_sets import AnswerSets
    from tasklm.tasks.consistency.base import Consistency

NONE = -100  # target of a place without one: padding of batches

Answer = dict[str, Any]  # readable, and ready for JSON
Label = Any  # what a kind calls the label of an example: a class name, a number, a list of tags …
Floats = NDArray[np.float64]


class Tokeniser(Protocol):
    """The parts of a vocabulary that encoding needs."""

    cls: int
    sep: int
    unk: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens."""
        ...

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a text and the characters that each stands for: (begin, end) in the text as
        given.
        """
        ...


@dataclass
class Unit:
    """A row of tokens that the head reads: an example, a window of a long one, or an option."""

    tokens: list[int]  # with [CLS] and [SEP]s, at most as many as a row has
    places: list[int]  # columns that the head reads
    # (places,) or (places, numbers): whole numbers, or floats where the kind has such;
    # None: not labelled
    targets: NDArray[Any] | None
    # column where the second text begins, for encoders with segments; 0: one text
    second: int = 0
    example: int = 0  # number of its example
    # (answers, outputs): what the model's wide part says
    wide: NDArray[np.float32] | None = None
    taught: NDArray[np.float32] | None = None  # (answers, outputs): what teachers say, as logits
    # for text without labels, the column of the last token of what begins at each place
    lasts: list[int] | None = None

    @property
    def wide_shape(self) -> tuple[int, int]:
        """The shape of what the wide part adds; (0, 0) if there is none."""
        return (0, 0) if self.wide is None else (self.wide.shape[0], self.wide.shape[1])

    def added(self) -> NDArray[np.float32] | None:
        """What the wide part adds to the head's outputs, (answers, outputs)."""
        return self.wide

    @classmethod
    def share_out(cls, units: Sequence[Unit], wide: NDArray[Any]) -> None:
        """Gives each unit the outputs of a wide part for it."""
        for unit, outputs in zip(units, split_by_unit(units, wide), strict=True):
            unit.wide = outputs

    @property
    def rows_of_text(self) -> int:
        """How many rows teachers have for the text of its example; 0: one for each answer."""
        return 0

    @classmethod
    def share_lessons(cls, units: Sequence[Unit], taught: NDArray[Any]) -> None:
        """Gives each unit what teachers say of it."""
        for unit, lesson in zip(units, split_by_unit(units, taught), strict=True):
            unit.taught = lesson


def split_by_unit(units: Sequence[Unit], outputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs (answers, …) of each unit: one answer, or one for each of its places."""
    counts = [1] * len(units)
    if len(outputs) != len(units):
        counts = [len(unit.places) for unit in units]
    assert sum(counts) == len(outputs)
    return np.split(outputs, np.cumsum(counts)[:-1])


@dataclass(frozen=True)
class Elsewhere:
    """The name and meaning, outside tasklm, of a task whose answers follow from the logits of
    single tokens.
    """

    pipeline: str  # as model cards name it
    # of the classes of transformers, after the family's name; "": none reads where this task's head
    # does
    ending: str
    meaning: str  # how logits become the answer
    problem: str = ""  # transformers' problem_type; "": none says it right
    of_words: bool = False  # logits are for each token; otherwise for the first one of a row
    # in the texts: the head reads the first token of each of them beside the first one of a row
    marks: tuple[str, ...] = ()


class Metric(Protocol):
    """A score as a function of sums over examples, so that a resample of the examples costs one
    matrix product.
    """

    name: str

    def statistics(self, gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        """An array (examples, numbers): the contribution of each example to the sums."""
        ...

    def value(self, sums: Floats) -> Floats:
        """The score, as a share of 1, for sums of shape (…, numbers): an array of shape (…)."""
        ...


class Task(Protocol):
    """The task of one data set: its kind, with what its training examples define."""

    kind: ClassVar[str]
    classifies: bool  # whether a label is one class, and an answer has the probabilities of all
    pairs: bool  # whether two texts alone are an input
    metrics: tuple[str, ...]  # names; the first is the default
    cased: bool  # whether capitals matter: names, the roles of words
    packs: bool  # whether examples may share a row: heads that look at each place by itself
    labels: list[str]  # names of classes; empty where the kind has none
    reads_vectors: bool  # whether its wide part can read word vectors
    # units that are answered as one, next to one another: the options of a choice; else 1
    together: int

    @property
    def elsewhere(self) -> Elsewhere | None:
        """The equivalent of the task in other programs; None if tasklm's own code must search for
        answers.
        """
        ...

    @property
    def sets(self) -> AnswerSets | None:
        """What sets with a promised coverage are made of; None where there are none."""
        ...

    @property
    def setless(self) -> str:
        """Why there are no such sets, and the way out; "" where there are."""
        ...

    @property
    def wide_width(self) -> int:
        """How many outputs a wide part has that can be added to those of the head; 0: none fits."""
        ...

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The examples of a file or folder, and notes for the user: which columns were read, what
        was skipped.
        """
        ...

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Task:
        """The task that training examples describe."""
        ...

    def example_of(self, text: str) -> Example:
        """The example of a single text; raises DataError, which names the columns, if the task
        needs more.
        """
        ...

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Task:
        """The task that `to_dict` described."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything a saved model must know about the task, including `kind`."""
        ...

    def audit(self, splits: Splits) -> list[Finding]:
        """The errors and warnings specific to this kind; "ok" findings if all is well."""
        ...

    def classes(self, label: Label) -> list[str]:
        """The class names in a label, for counts and the confusion matrix; empty where the kind has
        none.
        """
        ...

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """The units of some examples in their order; those of labelled examples have targets."""
        ...

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head: states (rows, places, width) → outputs (rows, answers, …), mostly an answer
        for each place.

        Its `flops(rows, places)` says what a forward pass costs.

        `normed`: the encoder asks for the LayerNorm of ModernBERT's heads (`Encoder.normed_heads`);
        kinds that transformers has no class for pass it by.
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss, in fp32, summed over what `count` counts; places whose target is NONE are
        ignored.
        """
        ...

    def count(self, targets: Tensor) -> int:
        """The number of examples, words … that the loss is summed over."""
        ...

    @property
    def unsmoothed(self) -> str:
        """Why labels cannot be smoothed (finetune.label_smoothing); "" where they can."""
        ...

    @property
    def incomparable(self) -> str:
        """Why two outputs for an example have no divergence (finetune.rdrop), that is `taught_loss`
        of the one against the other, less that of the other against itself; "" where they have.
        """
        ...

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The loss against what teachers say, in place of labels, summed over what `count` counts.

        `taught` has an answer where the outputs have one. Targets only tell which of them hold an
        example.
        """
        ...

    def lesson(self, outputs: Floats) -> Any:
        """What the outputs of one unit, cut to its places, teach: logits (answers, classes), or
        what kinds of `text_lessons` make lessons of.
        """
        ...

    def consistency(self) -> Consistency:
        """How the task learns from text without labels; raises RecipeError, with the reason, where
        it cannot.
        """
        ...

    def keep(self, outputs: Floats) -> Any:
        """The part of one unit's outputs to keep: those of its places, or what is decoded from them
        if they are large.
        """
        ...

    def tuned(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> Task:
        """The task tuned on dev (thresholds); itself if there is nothing to tune."""
        ...

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """An answer for each example from the predictions that `keep` returned for each unit."""
        ...

    def label_of(self, answer: Answer) -> Label:
        """The label of an answer, in the form of `Example.label`."""
        ...

    @property
    def unranked(self) -> str:
        """Why texts cannot be ranked by how unsure the model is of them; "" where they can."""
        ...

    def rivals(self, answer: Answer) -> Rivals:
        """What an answer wavers between; raises RecipeError where texts cannot be ranked."""
        ...

    @classmethod
    def sheet(cls, path: Path, data: Data) -> SheetColumns:
        """The columns of a training file, for a sheet of texts to label; raises as `rivals`."""
        ...

    def metric(self, name: str) -> Metric:
        """The named metric; raises RecipeError, which names those that the kind has, for others."""
        ...

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Any = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """Cheap predictions: name of the baseline → split → a label per example.

        `held` has dev, by whose metric a baseline may choose its strength, and, if given, test.
        `wide` is the wide part (`wide.Wide`) that `fit_wide` fitted, if there is one: alone it is a
        baseline.
        """
        ...

    def fit_wide(
        self, train: Sequence[Example], dev: Sequence[Example], metric: str, vectors: Any = None
    ) -> Any:
        """Fits the wide part of a model (`wide.Wide`) and its outputs for train, as a FittedWide.

        None if the kind has none, or if the texts contain nothing to learn from.
        """
        ...


class LabelsAlone:
    """A kind of task that cannot learn from text without labels, and why."""

    kind: ClassVar[str]
    labels_alone: str

    def consistency(self) -> Consistency:
        """There is none: see `labels_alone`."""
        problem = f"tasks of kind {self.kind} learn from labels alone: {self.labels_alone}"
        raise RecipeError([f"finetune.unlabelled: {problem}; leave it out"])


class Untuned:
    """A kind of task of which nothing is tuned on dev."""

    def tuned(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> Self:
        """The task itself."""
        return self


def score(metric: Metric, gold: Sequence[Label], predicted: Sequence[Label]) -> float:
    """A metric of predicted labels."""
    return float(metric.value(metric.statistics(gold, predicted).sum(0)))


TASKS: Registry[type[Task]] = Registry("kind of task", "tasklm.tasks")
