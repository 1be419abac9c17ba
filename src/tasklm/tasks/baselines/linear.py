"""Linear models over `featuriser.Featuriser`: baselines without language models, chosen on dev.

They see the same training examples as the model, and their features, strength and class weights are
chosen on the same dev examples, so a model that does not beat them is not worth its cost.

Time and memory are bounded: at most MOST_WORDS of train are read, settings are compared by fits to
at most CHOOSING entries of the matrix for all classes together, and the best is fitted to at most
FITTING. If there are more, examples are thinned out evenly.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.processes import processes_for
from tasklm.corpus.words import count_words
from tasklm.errors import DataError
from tasklm.storage.scratch import scratch_of_process
from tasklm.tasks.base import Floats, Label, Metric, score
from tasklm.tasks.baselines.featuriser import MOST_FEATURES, Featuriser, evenly, joined
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import usual_marks

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # C: the larger, the freer the weights
USUAL = 0.3  # for comparing views and class weights, and without a dev set
# Blocks of features that are tried together, by the block that is available.
VIEWS = {
    "alike": (
        ("alike",),
        ("alike", "shared"),
        ("alike", "shared", "words"),
        ("alike", "shared", "words", "marks"),
    ),
    "marks": (("marks",), ("marks", "words"), ("marks", "words", "letters")),
    "letters": (("words",), ("letters",), ("words", "letters")),
    "words": (("words",),),
}
MOST_WORDS = 3_000_000
CHOOSING, FITTING = 15_000_000, 200_000_000
MOST_WEIGHTS = 20_000_000  # features of a block times outputs
MOST_DECISIONS = 2_000_000  # examples of dev that choose, times outputs
AT_ONCE = 2000  # examples that are predicted together: a test set may be far larger than train
TOLERANCE = 0.05  # of a fit; liblinear's own is 0.1, and 0.01 predicts the same
_WORTH_A_PROCESS = 1 << 25  # entries of matrices: fewer are fitted before a process has started

Targets = NDArray[np.bool_]
Judge = Callable[[Sequence[Example], Floats], float]  # of decisions on examples


@dataclass(frozen=True)
class Setting:
    """How a linear model is fitted: the blocks that it sees, its strength, the weights of classes.

    Classes are weighted by their frequency (None), equally ("balanced", as in LinearSVC), or each
    as much as all the others together ("half"), which helps if most examples belong to an
    unimportant class.
    """

    view: tuple[str, ...]
    strength: float
    class_weight: str | None = None


@dataclass(frozen=True)
class Linear:
    """A fitted model of the blocks in its view: weights (features, outputs), and offsets."""

    view: tuple[str, ...]
    weights: Floats
    offsets: Floats

    def decisions(self, parts: Mapping[str, Any]) -> Floats:
        """The margin of each class against the rest, (examples, outputs)."""
        return np.asarray(matrix_of(parts, self.view) @ self.weights + self.offsets, np.float64)


def majority(train: Sequence[Example], texts: Sequence[Any]) -> list[Any]:
    """The most frequent training label, once per text; the alphabetically first in a tie."""
    if not train:
        raise DataError(
            "there are no training examples", remedy="Give a training file with labelled examples."
        )
    counts = Counter(example.label for example in train)
    label = min(counts, key=lambda name: (-counts[name], str(name)))
    return [label] * len(texts)


@dataclass(frozen=True)
class ChosenClasses:
    """A linear classifier: the trainer's examples, their classes, and the setting chosen on dev."""

    trainer: Trainer
    labels: list[Label]
    classes: NDArray[np.int64]
    targets: Targets
    setting: Setting
    dev_score: float | None


def _named(labels: Sequence[Label], decisions: Floats) -> list[Label]:
    best = decisions.argmax(axis=1)
    if len(labels) == 2:
        best = (decisions[:, 0] > 0).astype(np.int64)
    return [labels[position] for position in best]


def choose_classes(
    train: Sequence[Example],
    dev: Sequence[Example],
    metric: Metric,
    marks: Sequence[str],
    vectors: WordVectors | None = None,
) -> ChosenClasses | None:
    """The setting that scores best on dev; None with a single class, or without text to count."""
    labels = sorted({example.label for example in train}, key=str)
    if len(labels) < 2:
        return None
    trainer = Trainer.of(train, marks, len(labels), vectors)
    if not trainer.parts:
        return None
    number = {label: position for position, label in enumerate(labels)}
    classes = np.array([number[example.label] for example in trainer.train])
    two = len(labels) == 2
    apart = range(len(labels))
    if two:
        apart = apart[1:]  # one output is enough
    targets = np.stack([classes == one for one in apart], axis=1)
    weights: list[str | None] = [None]
    if len(set(np.bincount(classes).tolist())) > 1:  # otherwise all are 1: the same fits again
        weights.append("balanced")
        if not two:
            weights.append("half")

    def judge(examples: Sequence[Example], decisions: Floats) -> float:
        return score(metric, [example.label for example in examples], _named(labels, decisions))

    setting, dev_score = trainer.choose(targets, weights, dev, judge)
    return ChosenClasses(trainer, labels, classes, targets, setting, dev_score)


@dataclass(frozen=True)
class Trainer:
    """Training examples, as many as are read, with their features: fits models to any targets."""

    train: list[Example]
    places: NDArray[np.int64]  # of these among all training examples
    featuriser: Featuriser
    parts: dict[str, Any]

    @classmethod
    def of(
        cls,
        train: Sequence[Example],
        marks: Sequence[str] = (),
        outputs: int = 1,
        vectors: WordVectors | None = None,
    ) -> Trainer:
        """The trainer of examples, and of models with so many outputs.

        If no markers are given, the usual ones in the texts are used.
        """
        places = thinned_places(train)
        some = [train[place] for place in places]
        most = max(1, min(MOST_FEATURES, MOST_WEIGHTS // outputs))
        featuriser, parts = Featuriser.fit_parts(some, marks or usual_marks(some), most, vectors)
        return cls(some, np.array(places, np.int64), featuriser, parts)

    @property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """The sets of blocks to choose from; vectors, where there are some, are in each."""
        sort = next(name for name in VIEWS if name in self.parts)
        views = [
            tuple(name for name in (*view, "vectors") if name in self.parts) for view in VIEWS[sort]
        ]
        return tuple(dict.fromkeys(view for view in views if view))

    def choose(
        self,
        targets: Targets,
        class_weights: Sequence[str | None],
        dev: Sequence[Example],
        judge: Judge,
    ) -> tuple[Setting, float | None]:
        """The setting whose decisions on dev score best, and that score.

        Without dev it is the usual one.
        """
        if not dev:
            return Setting(self.views[-1], USUAL), None
        outputs = targets.shape[1]
        some = evenly(thinned(dev), MOST_DECISIONS // outputs)
        parts = self.featuriser.parts(some)
        # the same number of examples for each view: with fewer, the larger views would look worse
        rows = rows_for(self.parts, self.views, outputs, CHOOSING)

        def judged(settings: Sequence[Setting]) -> list[float]:
            columns = each_of(decide, fits_of(self.parts, targets, settings, rows, parts))
            starts = range(0, len(columns), outputs)
            return [judge(some, np.stack(columns[at : at + outputs], axis=1)) for at in starts]

        first = [
            Setting(view, USUAL, weight)
            for view, weight in itertools.product(self.views, class_weights)
        ]
        return best_of(first, STRENGTHS, judged)

    def fit(self, targets: Targets, setting: Setting) -> Linear:
        """The model of a setting, fitted to all examples that are read."""
        rows = rows_for(self.parts, [setting.view], targets.shape[1], FITTING)
        solved = each_of(solve, fits_of(self.parts, targets, [setting], rows))
        weights = np.stack([weight for weight, _ in solved], axis=1)
        return Linear(setting.view, weights, np.array([offset for _, offset in solved]))

    def decisions(self, model: Linear, examples: Sequence[Example]) -> Floats:
        """The decisions of a model on other examples, a bounded number at a time."""
        rows = [np.zeros((0, len(model.offsets)))]
        for start in range(0, len(examples), AT_ONCE):
            parts = self.featuriser.parts(examples[start : start + AT_ONCE])
            rows.append(model.decisions(parts))
        return np.concatenate(rows)


def best_of(
    first: Sequence[Setting],
    strengths: Sequence[float],
    judged: Callable[[Sequence[Setting]], list[float]],
) -> tuple[Setting, float]:
    """The best of some settings of one strength, with the strength that is best for it.

    From their strength, others are tried in both directions as long as they are better. In a tie
    the first one tried wins.
    """
    scores = dict(zip(first, judged(first), strict=True))
    best = max(scores, key=lambda setting: scores[setting])
    start = strengths.index(best.strength)
    below = [dataclasses.replace(best, strength=strength) for strength in strengths[:start][::-1]]
    above = [dataclasses.replace(best, strength=strength) for strength in strengths[start + 1 :]]
    nearest = [*below[:1], *above[:1]]  # together, since they may share processes
    scores |= zip(nearest, judged(nearest), strict=True)
    for side in (below, above):
        for last, following in itertools.pairwise([best, *side]):
            if following not in scores:
                (scores[following],) = judged([following])
            if scores[following] <= scores[last]:
                break
    best = max(scores, key=lambda setting: scores[setting])
    return best, scores[best]


def matrix_of(parts: Mapping[str, Any], view: Sequence[str]) -> Any:
    """The blocks of a view side by side."""
    return joined([parts[name] for name in view])


def thinned(examples: Sequence[Example]) -> list[Example]:
    """All examples, or evenly spread ones if they have more than MOST_WORDS."""
    return [examples[place] for place in thinned_places(examples)]


def thinned_places(examples: Sequence[Example]) -> list[int]:
    """The positions of the examples that `thinned` keeps."""
    size = sum(count_words(example.text) for example in examples)
    return evenly(range(len(examples)), len(examples) * MOST_WORDS // max(size, MOST_WORDS))


@dataclass(frozen=True)
class Fit:
    """One output of a setting against the rest, on some rows of its matrix."""

    setting: Setting
    matrix: Any
    positive: Targets
    outputs: int
    others: Any  # the matrix of other examples, to decide

    @property
    def class_weight(self) -> dict[bool, float] | str | None:
        """The weights of the class and of the rest, for a LinearSVC of these two."""
        if self.setting.class_weight == "balanced" and self.outputs > 1:
            # the rest is several classes, and keeps its weight
            return {
                True: len(self.positive) / (self.outputs * int(self.positive.sum())),
                False: 1.0,
            }
        if self.setting.class_weight is None:
            return None
        return "balanced"


def rows_for(
    parts: Mapping[str, Any], views: Sequence[Sequence[str]], outputs: int, most: int
) -> NDArray[np.int64]:
    """All rows, or evenly spread ones where the entries of the largest view, times outputs, are
    more than `most`.
    """
    rows = next(iter(parts.values())).shape[0]
    largest = max(sum(parts[name].nnz for name in view) for view in views)
    return np.array(evenly(range(rows), int(rows * most / max(1.0, largest * outputs))))


def fits_of(
    parts: Mapping[str, Any],
    targets: Targets,
    settings: Sequence[Setting],
    rows: NDArray[np.int64],
    others: Mapping[str, Any] | None = None,
) -> list[Fit]:
    """The fits of some settings to some rows, output by output."""
    outputs = targets.shape[1]
    views: dict[tuple[str, ...], tuple[Any, Targets, Any]] = {}
    for view in {setting.view for setting in settings}:
        beside = None if others is None else matrix_of(others, view)
        views[view] = (matrix_of(parts, view)[rows], targets[rows], beside)
    fits = []
    for setting in settings:
        matrix, wanted, beside = views[setting.view]
        fits += [
            Fit(setting, matrix, wanted[:, output], outputs, beside) for output in range(outputs)
        ]
    return fits


def each_of(work: Callable[[Fit], Any], fits: Sequence[Fit]) -> list[Any]:
    """What `work` gives for each of some fits, which are shared among processes.

    Processes, not threads: liblinear draws its order of examples from a state that all threads of a
    process share.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    slow_first = sorted(
        range(len(fits)), key=lambda place: (-fits[place].matrix.nnz, -fits[place].setting.strength)
    )
    processes = processes_for(sum(fit.matrix.nnz for fit in fits), _WORTH_A_PROCESS)
    shared = scratch_of_process().folder  # for the arrays that joblib maps into other processes
    parallel = Parallel(processes, mmap_mode="c", temp_folder=shared)
    results = parallel(delayed(work)(fits[place]) for place in slow_first)
    by_place = dict(zip(slow_first, results, strict=True))
    return [by_place[place] for place in range(len(fits))]


def decide(fit: Fit) -> Floats:
    """The decisions of a fit on the other examples; keeping the weights of many fits would fill the
    memory.
    """
    weights, offset = solve(fit)
    return np.asarray(fit.others @ weights + offset, np.float64)


def solve(fit: Fit) -> tuple[Floats, float]:
    """The weights and the offset of a linear support vector machine.

    If all examples are on one side the answer is certain.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    nothing = np.zeros(fit.matrix.shape[1])
    if fit.positive.all():
        return nothing, math.inf
    if not fit.positive.any():
        return nothing, -math.inf
    # Not logistic regression: on ACL-ARC, NICTA-PIBOSO, Yoruba news and SciERC it scores no better
    # on dev and takes three times as long.
    weight = fit.class_weight
    machine = LinearSVC(
        C=fit.setting.strength, class_weight=weight, dual="auto", tol=TOLERANCE, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # dev decides about such a fit like any other
        machine.fit(fit.matrix, fit.positive)
    return np.asarray(machine.coef_[0], np.float64), float(machine.intercept_[0])
