"""Fits the linear model of words again, to more examples, with the setting that was chosen before.

Nothing is chosen on dev, nothing is fitted out of fold, and only what the setting looks at is
counted: that is what most of the time of a first fit goes to. What an output means (its scale)
stays, and so do word vectors. Machines are fitted from the beginning: from the earlier weights it
takes as many steps, since new examples change what every word counts for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats, Task
from tasklm.tasks.baselines.counted import NOTHING, Counted
from tasklm.tasks.baselines.featuriser import MOST_FEATURES, Featuriser
from tasklm.tasks.baselines.linear import (
    FITTING,
    MOST_WEIGHTS,
    ChosenClasses,
    Linear,
    Setting,
    Targets,
    Trainer,
    matrix_of,
    rows_for,
    thinned_places,
)
from tasklm.tasks.baselines.margins import Machine, Products
from tasklm.tasks.baselines.option_features import OptionFeatures
from tasklm.tasks.baselines.tag_fitting import fit_linear
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_fitting import (
    FittedWide,
    OptionTrainer,
    fit_classes,
    option_counts,
    some_sentences,
)
from tasklm.tasks.baselines.word_features import WordFeatures
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.tag_schemes import learned
from tasklm.tasks.marks import usual_marks

TOLERANCE = 0.02  # of margins: no prediction is further than this from that of an exact fit
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Grown:
    """A task before and after more examples came, and these."""

    before: Task
    after: Task
    train: Sequence[Example]  # all that are learnt now
    fresh: NDArray[np.bool_]  # which of them the model before has not learnt
    counted: Counted = NOTHING  # tokens of those that it has learnt


def refitted(wide: Wide, grown: Grown) -> Wide | None:
    """A linear model fitted again with its setting; None if that is not known, or the kind of model
    is always fitted whole.
    """
    if wide.form == "tags":
        return _tags(wide, grown)
    if wide.setting is None or wide.form not in _BY_FORM:
        return None
    return _BY_FORM[wide.form](wide, wide.setting, grown)


def cross_fitted(wide: Wide, grown: Grown, dev: Sequence[Example], metric: str) -> FittedWide:
    """A linear model fitted again, and what models without them say of all training examples, which
    a network reads beside their texts.
    """
    train, task = grown.train, grown.after
    vectors = None if not isinstance(wide.features, Featuriser) else wide.features.vectors
    known = None if vectors is None else vectors.vectors
    if wide.form != "classes" or wide.setting is None:
        fitted: FittedWide = task.fit_wide(train, dev, metric, known)
        return fitted
    labels = task.labels
    number = {label: place for place, label in enumerate(labels)}
    marks = wide.features.marks if isinstance(wide.features, Featuriser) else ()
    trainer = Trainer.of(train, marks, len(labels), known)
    classes = np.array([number[example.label] for example in trainer.train])
    apart = range(len(labels))[1 if len(labels) == 2 else 0 :]
    targets = np.stack([classes == one for one in apart], axis=1)
    return fit_classes(ChosenClasses(trainer, labels, classes, targets, wide.setting, None), train)


@dataclass(frozen=True)
class _Matrix:
    """The features of the examples that are read, as many as a first fit reads."""

    features: Featuriser
    parts: dict[str, Any]
    rows: Rows  # of these among those that are read
    places: Rows  # of these among all

    @classmethod
    def of(cls, wide: Wide, setting: Setting, grown: Grown, outputs: int) -> _Matrix:
        """The matrix of a model's view; word vectors are those of before."""
        assert isinstance(wide.features, Featuriser)
        places = np.array(thinned_places(grown.train), np.int64)
        some = [grown.train[place] for place in places.tolist()]
        marks: Sequence[str] = ()
        if "marks" in setting.view:
            marks = wide.features.marks or usual_marks(some)
        most = max(1, min(MOST_FEATURES, MOST_WEIGHTS // outputs))
        features, parts = Featuriser.fit_parts(
            some, marks, most, view=setting.view, earlier=grown.counted
        )
        if wide.features.vectors is not None:
            features.vectors = wide.features.vectors
            parts["vectors"] = features.vectors.matrix([one.text for one in some])
        rows = rows_for(parts, [setting.view], outputs, FITTING)
        return cls(features, parts, rows, places[rows])

    def of_view(self, setting: Setting) -> Any:
        """One matrix, with a row for each example that is fitted."""
        return matrix_of(self.parts, setting.view)[self.rows]


def _classes(wide: Wide, setting: Setting, grown: Grown) -> Wide:
    labels = grown.after.labels
    number = {label: place for place, label in enumerate(labels)}
    apart = labels[1:] if len(labels) == 2 else labels  # one output is enough for two
    matrix = _Matrix.of(wide, setting, grown, len(labels))
    own = [grown.train[place] for place in matrix.places.tolist()]
    classes = np.array([number[example.label] for example in own])
    targets = np.stack([classes == number[label] for label in apart], axis=1)
    linear = _machines(setting, matrix, targets)
    return replace(wide, features=matrix.features, linear=linear)


def _labels(wide: Wide, setting: Setting, grown: Grown) -> Wide:
    labels = grown.after.labels
    matrix = _Matrix.of(wide, setting, grown, len(labels))
    sets = [set(grown.train[place].label) for place in matrix.places.tolist()]
    targets = np.array([[label in names for label in labels] for names in sets], bool)
    linear = _machines(setting, matrix, targets)
    return replace(wide, features=matrix.features, linear=linear)


def _machines(setting: Setting, matrix: _Matrix, targets: Targets) -> Linear:
    """A machine for each output."""
    whole = matrix.of_view(setting)
    products = Products.of(whole)
    weights, offsets = [], []
    for positive in targets.T:
        if positive.all() or not positive.any():
            weights.append(np.zeros(whole.shape[1]))
            offsets.append(np.inf if positive.all() else -np.inf)
            continue
        machine = Machine.of(products, positive, _costs(setting, positive, targets.shape[1]))
        shares = machine.fit(TOLERANCE)
        weights.append(whole.T @ shares)
        offsets.append(float(shares.sum()))
    return Linear(setting.view, np.stack(weights, axis=1), np.array(offsets))


def _costs(setting: Setting, positive: NDArray[np.bool_], outputs: int) -> Floats:
    """C of each example, by the weights of classes, as for a first fit (`linear.Fit`)."""
    count, own = len(positive), int(positive.sum())
    for_own, for_rest = 1.0, 1.0
    if setting.class_weight == "balanced" and outputs > 1:
        for_own = count / (outputs * own)
    elif setting.class_weight is not None:
        for_own, for_rest = count / (2 * own), count / (2 * (count - own))
    return np.asarray(setting.strength * np.where(positive, for_own, for_rest))


def _score(wide: Wide, setting: Setting, grown: Grown) -> Wide:
    from sklearn.linear_model import Ridge

    matrix = _Matrix.of(wide, setting, grown, 1)
    wanted = np.array([grown.train[place].label for place in matrix.places.tolist()])
    model = Ridge(alpha=setting.strength, solver="sparse_cg", tol=1e-3)
    model.fit(matrix.of_view(setting), wanted)
    offsets = np.array([model.intercept_])
    linear = Linear(setting.view, model.coef_.reshape(-1, 1), offsets)
    values = grown.after.to_dict()
    span = (values["high"] - values["low"]) or 1.0
    scaled = {"scale": 1 / span, "offset": -values["low"] / span}
    return replace(wide, features=matrix.features, linear=linear, **scaled)


def _options(wide: Wide, setting: Setting, grown: Grown) -> Wide:
    places = thinned_places(grown.train)
    some = [grown.train[place] for place in places]
    together = grown.after.together
    features = OptionFeatures.fit(some, together)
    right = np.array([example.label for example in some])
    trainer = OptionTrainer(features.parts(some), option_counts(some), right, together)
    linear = trainer.fit(np.arange(len(some)), setting.strength)
    return replace(wide, features=features, linear=linear)


def _tags(wide: Wide, grown: Grown) -> Wide:
    assert isinstance(wide.features, WordFeatures)
    labels, values = grown.after.labels, grown.after.to_dict()
    some = [grown.train[place] for place in some_sentences(grown.train)]
    most = min(MOST_FEATURES, MOST_WEIGHTS // len(labels))
    characters, clusters = bool(values["characters"]), wide.features.clusters
    features, parts = WordFeatures.fit_parts(some, characters, most, clusters)
    number = {label: place for place, label in enumerate(labels)}
    recoded = bool(values.get("recoded"))
    tags = [number[tag] for one in some for tag in learned(one.label, recoded) or labels[:1]]
    linear = fit_linear(parts["context"], np.array(tags, np.int64), len(labels))
    return replace(wide, features=features, linear=linear)


_BY_FORM: dict[str, Callable[[Wide, Setting, Grown], Wide]] = {
    "classes": _classes,
    "labels": _labels,
    "score": _score,
    "options": _options,
}
