"""Linear models over `featuriser.Featuriser`: the baselines that need no language model, chosen on dev only.

They see the same training examples as the model, and the same dev examples choose their features, strength and class weights, so
that a model that does not beat them has not earned its cost. Their time is bounded: MOST_WORDS of train are read, settings are
compared by fits to at most CHOOSING entries of the matrix for all classes together, and the best is fitted to at most FITTING.
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
from tasklm.errors import DataError
from tasklm.tasks.base import Floats, Label, Metric, score
from tasklm.tasks.examples import Example
from tasklm.tasks.featuriser import MOST, Featuriser
from tasklm.tasks.marks import usual_marks

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # C: the larger, the less the weights are held down
USUAL = 0.3  # by which views and class weights are compared, and where no dev set chooses
VIEWS = {  # blocks of features that are tried together, by the block that tells what there is to see
    "alike": (("alike",), ("alike", "shared"), ("alike", "shared", "words")),
    "marks": (("marks",), ("marks", "words"), ("marks", "words", "letters")),
    "letters": (("words",), ("letters",), ("words", "letters")),
    "words": (("words",),),
}
MOST_WORDS = 3_000_000
CHOOSING, FITTING = 15_000_000, 200_000_000
MOST_WEIGHTS = 20_000_000  # features of a block times outputs
AT_ONCE = 5000  # examples that are predicted together: a test set may be far larger than train
_WORTH_A_PROCESS = 1 << 25  # entries of the matrix times fits: fewer are done before a process has started


@dataclass(frozen=True)
class Setting:
    """How a linear model is fitted: which blocks it sees, its strength, and what rare classes weigh.

    Classes weigh as they occur (None), as if all were as frequent ("balanced", LinearSVC's own), or each as much as all the others
    together ("half"), which helps where most examples are of none that matters.
    """

    view: tuple[str, ...]
    strength: float
    class_weight: str | None = None


@dataclass(frozen=True)
class Linear:
    """A fitted model: weights (features, outputs) and an offset for each output, of the blocks in its view."""

    view: tuple[str, ...]
    weights: Floats
    offsets: Floats

    def decisions(self, parts: Mapping[str, Any]) -> Floats:
        """By how much each example is rather of each class than of the rest, (examples, outputs)."""
        return np.asarray(seen(parts, self.view) @ self.weights + self.offsets, np.float64)


@dataclass(frozen=True)
class LinearBaseline:
    """What TF-IDF + a linear model predicts, and how it was chosen; `setting` is None where majority stood in."""

    labels: dict[str, list[Label]]  # of each split
    setting: Setting | None
    dev_score: float | None


def majority(train: Sequence[Example], texts: Sequence[Any]) -> list[Any]:
    """Returns the most frequent training label once per text; of equally frequent ones the first by name."""
    if not train:
        raise DataError("there are no training examples", remedy="Give a training file with labelled examples.")
    counts = Counter(example.label for example in train)
    label = min(counts, key=lambda name: (-counts[name], str(name)))
    return [label] * len(texts)


def tfidf_linear(
    train: Sequence[Example], held: Mapping[str, Sequence[Example]], metric: Metric, marks: Sequence[str] = ()
) -> LinearBaseline:
    """Returns the classes that the setting which scores best on dev predicts for each split.

    Where there is nothing to learn from (one class, or texts without a letter) it is the majority baseline.
    """
    labels = sorted({example.label for example in train}, key=str)
    data = Fitted.of(train, marks, len(labels))
    if not data.parts or len(labels) < 2:
        return LinearBaseline({name: majority(train, part) for name, part in held.items()}, None, None)
    number = {label: position for position, label in enumerate(labels)}
    classes = np.array([number[example.label] for example in data.train])
    targets = np.stack([classes == one for one in (range(1, 2) if len(labels) == 2 else range(len(labels)))], axis=1)
    weights: list[str | None] = [None]
    if len(set(np.bincount(classes).tolist())) > 1:  # else balanced weights are all 1: the same fits again
        weights += ["balanced"] if len(labels) == 2 else ["balanced", "half"]

    def named(decisions: Floats) -> list[Label]:
        best = (decisions[:, 0] > 0).astype(np.int64) if len(labels) == 2 else decisions.argmax(axis=1)
        return [labels[position] for position in best]

    dev = list(held.get("dev", ()))
    gold = [example.label for example in dev]
    chosen, reached = data.choose(targets, weights, dev, lambda decisions: score(metric, gold, named(decisions)))
    model = data.fit(targets, chosen)
    return LinearBaseline({name: named(data.decisions(model, part)) for name, part in held.items()}, chosen, reached)


@dataclass(frozen=True)
class Fitted:
    """Training examples, as many as are read, with their features."""

    train: list[Example]
    featuriser: Featuriser
    parts: dict[str, Any]

    @classmethod
    def of(cls, train: Sequence[Example], marks: Sequence[str] = (), outputs: int = 1) -> Fitted:
        """The examples, thinned where they are very many, and their features; marks that texts usually have are seen too."""
        read = sum(len(text.split()) for example in train for text in example.texts)
        some = evenly(train, len(train) * MOST_WORDS // max(read, MOST_WORDS))
        featuriser = Featuriser.fit(some, marks or usual_marks(some), min(MOST, MOST_WEIGHTS // outputs))
        return cls(some, featuriser, featuriser.parts(some))

    @property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """The sets of blocks to choose from."""
        sort = next(name for name in VIEWS if name in self.parts)
        views = [tuple(name for name in view if name in self.parts) for view in VIEWS[sort]]
        return tuple(dict.fromkeys(view for view in views if view))

    def choose(
        self,
        targets: NDArray[np.bool_],
        class_weights: Sequence[str | None],
        dev: Sequence[Example],
        judge: Callable[[Floats], float],
    ) -> tuple[Setting, float | None]:
        """The setting whose decisions on dev are judged best, and how good they are; without dev the usual one."""
        if not dev:
            return Setting(self.views[-1], USUAL), None
        parts = self.featuriser.parts(dev)

        def judged(settings: Sequence[Setting]) -> list[float]:
            columns = solved(fits_of(self.parts, targets, settings, CHOOSING, parts))
            outputs = targets.shape[1]
            return [judge(np.stack(columns[at : at + outputs], axis=1)) for at in range(0, len(columns), outputs)]

        first = [Setting(view, USUAL, weight) for view in self.views for weight in class_weights]
        return best_of(first, STRENGTHS, judged)

    def fit(self, targets: NDArray[np.bool_], setting: Setting) -> Linear:
        """The model of a setting, fitted to all examples that are read."""
        weights, offsets = zip(*solved(fits_of(self.parts, targets, [setting], FITTING)), strict=True)
        return Linear(setting.view, np.stack(weights, axis=1), np.array(offsets))

    def decisions(self, model: Linear, examples: Sequence[Example]) -> Floats:
        """What a model decides of other examples, a bounded number of them at a time."""
        starts = range(0, len(examples), AT_ONCE)
        rows = [model.decisions(self.featuriser.parts(examples[start : start + AT_ONCE])) for start in starts]
        return np.concatenate(rows) if rows else np.zeros((0, len(model.offsets)))


def best_of(
    first: Sequence[Setting], strengths: Sequence[float], judged: Callable[[Sequence[Setting]], list[float]]
) -> tuple[Setting, float]:
    """The best of some settings, all of one strength, with the strength that is best for it; of equal ones the earliest judged.

    From the strength that they have, others are tried in both directions for as long as they are better.
    """
    scores = dict(zip(first, judged(first), strict=True))
    best = max(scores, key=lambda setting: scores[setting])
    start = strengths.index(best.strength)
    below, above = (
        [dataclasses.replace(best, strength=strength) for strength in side] for side in (strengths[:start][::-1], strengths[start + 1 :])
    )
    nearest = [*below[:1], *above[:1]]
    scores |= zip(nearest, judged(nearest), strict=True)
    for side in (below, above):
        for last, following in itertools.pairwise([best, *side]):
            if following not in scores:
                (scores[following],) = judged([following])
            if scores[following] <= scores[last]:
                break
    best = max(scores, key=lambda setting: scores[setting])
    return best, scores[best]


def seen(parts: Mapping[str, Any], view: Sequence[str]) -> Any:
    """The blocks of a view beside one another."""
    from scipy.sparse import hstack  # here and below: these packages cost a second, which reading and training need not spend

    return hstack([parts[name] for name in view], format="csr")


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of some things, spread evenly over them."""
    if len(items) <= most:
        return list(items)
    return [items[place] for place in np.linspace(0, len(items) - 1, max(1, most)).round().astype(int).tolist()]


@dataclass(frozen=True)
class Fit:
    """One fit: an output of a setting against the rest, on some rows of its matrix; `others`, if given, are decided at once."""

    setting: Setting
    matrix: Any
    positive: NDArray[np.bool_]
    outputs: int
    others: Any = None

    @property
    def class_weight(self) -> dict[bool, float] | str | None:
        """What examples of the class and of the rest weigh, for a LinearSVC of these two."""
        if self.setting.class_weight == "balanced" and self.outputs > 1:  # the rest is several classes, and keeps its weight
            return {True: len(self.positive) / (self.outputs * int(self.positive.sum())), False: 1.0}
        return None if self.setting.class_weight is None else "balanced"


def fits_of(
    parts: Mapping[str, Any], targets: NDArray[np.bool_], settings: Sequence[Setting], most: int, others: Mapping[str, Any] | None = None
) -> list[Fit]:
    """The fits of some settings, output by output; rows are thinned where entries times outputs are more than `most`."""
    rows, outputs = targets.shape
    views: dict[tuple[str, ...], tuple[Any, NDArray[np.bool_], Any]] = {}
    for view in {setting.view for setting in settings}:
        whole = seen(parts, view)
        some = np.array(evenly(range(rows), int(rows * most / max(1.0, whole.nnz * outputs))))
        views[view] = whole[some], targets[some], None if others is None else seen(others, view)
    fits = []
    for setting in settings:
        matrix, wanted, others_seen = views[setting.view]
        fits += [Fit(setting, matrix, wanted[:, output], outputs, others_seen) for output in range(outputs)]
    return fits


def solved(fits: Sequence[Fit]) -> list[Any]:
    """What `solve` gives for each of some fits, which are shared among processes.

    Processes, not threads: liblinear draws its order of examples from a state that all threads of a process share.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    slow_first = sorted(range(len(fits)), key=lambda place: (-fits[place].matrix.nnz, -fits[place].setting.strength))
    processes = processes_for(sum(fit.matrix.nnz for fit in fits), _WORTH_A_PROCESS)
    results = Parallel(processes, mmap_mode="c")(delayed(solve)(fits[place]) for place in slow_first)
    by_place = dict(zip(slow_first, results, strict=True))
    return [by_place[place] for place in range(len(fits))]


def solve(fit: Fit) -> tuple[Floats, float] | Floats:
    """Fits a linear support vector machine: its weights and offset, or what it decides of the others.

    Where all examples are on one side the answer is sure.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    weights, offset = np.zeros(fit.matrix.shape[1]), math.inf if fit.positive.all() else -math.inf
    if fit.positive.any() and not fit.positive.all():
        # Not logistic regression: on ACL-ARC, NICTA-PIBOSO, Yoruba news and SciERC it scores no better on dev and takes three times
        # as long. A tolerance of 0.05 (liblinear's own is 0.1) predicts the same as 0.01.
        machine = LinearSVC(C=fit.setting.strength, class_weight=fit.class_weight, tol=0.05, max_iter=1000, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(fit.matrix, fit.positive)
        weights, offset = machine.coef_[0], float(machine.intercept_[0])
    return (weights, offset) if fit.others is None else np.asarray(fit.others @ weights + offset, np.float64)
