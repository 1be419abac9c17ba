"""Fits the wide parts of models: settings are chosen on dev, outputs for train are out of fold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats, Label, Metric, score
from tasklm.tasks.examples import Example
from tasklm.tasks.featuriser import evenly
from tasklm.tasks.linear import ChosenClasses, Linear, Setting, Targets, Trainer, best_of, matrix_of
from tasklm.tasks.option_features import OptionFeatures
from tasklm.tasks.wide import Wide, outputs_of

FOLDS = 5
SCALES = np.geomspace(0.2, 20, 41)  # of decisions, of which that with the likeliest labels of train is taken
OFFSETS = np.linspace(-4, 4, 33)
OPTION_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # the larger, the freer the weights
USUAL_OPTIONS = 0.3
CHOOSING = 4000  # examples that choose a strength, at most
_STEPS = 60  # of the search for weights of options, at most


Rows = NDArray[np.int64]


@dataclass(frozen=True)
class FittedWide:
    """A wide part, and what is added to the outputs of each training unit by models that were fitted without it."""

    wide: Wide
    train: NDArray[np.float32]


def fit_classes(chosen: ChosenClasses, train: Sequence[Example]) -> FittedWide:
    """The wide part of a classifier with the setting that was chosen."""
    trainer = chosen.trainer
    model, decisions = _cross_fitted(trainer, train, lambda own, rows: own.fit(chosen.targets[rows], chosen.setting))
    own = decisions[_places(trainer, train)]
    likely = [_likelihood(outputs_of("classes", own, scale, 0.0), chosen.classes) for scale in SCALES]
    wide = Wide("classes", trainer.featuriser, model, float(SCALES[int(np.argmax(likely))]))
    return FittedWide(wide, outputs_of("classes", decisions, wide.scale, 0.0))


def fit_labels(trainer: Trainer, targets: Targets, setting: Setting, train: Sequence[Example]) -> FittedWide:
    """The wide part of a model that says yes or no to each label."""
    model, decisions = _cross_fitted(trainer, train, lambda own, rows: own.fit(targets[rows], setting))
    own = decisions[_places(trainer, train)]
    tried = [(_agreement(outputs_of("labels", own, scale, offset), targets), scale, offset) for scale in SCALES for offset in OFFSETS]
    _, scale, offset = max(tried)
    wide = Wide("labels", trainer.featuriser, model, float(scale), float(offset))
    return FittedWide(wide, outputs_of("labels", decisions, wide.scale, wide.offset))


def fit_score(
    trainer: Trainer, train: Sequence[Example], solve: Callable[[dict[str, Any], Rows], Linear], bounds: tuple[float, float]
) -> FittedWide:
    """The wide part of a model that gives a score between two bounds; `solve` fits the features of some rows."""
    model, decisions = _cross_fitted(trainer, train, lambda own, rows: solve(own.parts, rows))
    low, high = bounds
    span = (high - low) or 1.0
    wide = Wide("score", trainer.featuriser, model, 1 / span, -low / span)
    return FittedWide(wide, outputs_of("score", decisions, wide.scale, wide.offset))


def fit_options(train: Sequence[Example], dev: Sequence[Example], metric: Metric, together: int) -> FittedWide:
    """The wide part of a choice: a softmax over the options of each example (conditional logit)."""
    features = OptionFeatures.fit(train, together)
    trainer = _OptionTrainer(features.parts(train), _counts(train), np.array([example.label for example in train]), together)
    some, everything = np.array(evenly(range(len(train)), CHOOSING)), np.arange(len(train))
    chosen = evenly(dev, CHOOSING)
    of_dev, counts = features.parts(chosen), _counts(chosen)
    gold: list[Label] = [example.label for example in chosen]

    def judged(settings: Sequence[Setting]) -> list[float]:
        fits = [trainer.fit(some, setting.strength).decisions(of_dev) for setting in settings]
        return [score(metric, gold, best_options(decisions, counts, together)) for decisions in fits]

    usual = Setting(features.blocks, USUAL_OPTIONS)
    strength = best_of([usual], OPTION_STRENGTHS, judged)[0].strength if chosen else USUAL_OPTIONS
    decisions = np.zeros((len(train) * together, 1))
    for held in _folds(len(train)):
        rows = (held[:, None] * together + np.arange(together)).ravel()
        fitted = trainer.fit(np.setdiff1d(everything, held), strength)
        decisions[rows] = fitted.decisions({name: part[rows] for name, part in trainer.parts.items()})
    wide = Wide("options", features, trainer.fit(everything, strength))
    return FittedWide(wide, outputs_of("options", decisions, 1.0, 0.0))


def best_options(decisions: Floats, counts: Rows, together: int) -> list[Label]:
    """The number of the option with the most points in each example."""
    points = decisions.reshape(-1, together)
    points = np.where(np.arange(together) < counts[:, None], points, -np.inf)
    return [int(best) for best in points.argmax(1)]


@dataclass(frozen=True)
class _OptionTrainer:
    """Options of training examples with their features: fits weights to some of them."""

    parts: dict[str, Any]
    counts: Rows  # options of each example
    right: Rows
    together: int

    def fit(self, examples: Rows, strength: float) -> Linear:
        """The weights with the likeliest right options, held down by their squares."""
        from scipy.optimize import minimize
        from scipy.sparse import diags

        rows = (examples[:, None] * self.together + np.arange(self.together)).ravel()
        matrix = matrix_of({name: part[rows] for name, part in self.parts.items()}, OptionFeatures.blocks)
        mean = np.asarray(matrix.mean(0)).ravel()
        spread = np.sqrt(np.maximum(np.asarray(matrix.multiply(matrix).mean(0)).ravel() - mean**2, 0.0))
        # measures are put on one scale; words, most of which are rare, keep theirs
        measures = self.parts["evidence"].shape[1]
        factors = np.ones(matrix.shape[1])
        factors[:measures] = 1 / np.where(spread[:measures] > 0, spread[:measures], 1.0)
        scaled = (matrix @ diags(factors)).tocsr()
        missing = np.arange(self.together) >= self.counts[examples][:, None]
        right = self.right[examples]
        turned = scaled.T.tocsr()

        def loss(weights: Floats) -> tuple[float, Floats]:
            points = np.where(missing, -np.inf, (scaled @ weights).reshape(-1, self.together))
            points -= points.max(1, keepdims=True)
            odds = np.exp(points)
            odds /= odds.sum(1, keepdims=True)
            there = odds[np.arange(len(right)), right]
            odds[np.arange(len(right)), right] -= 1
            value = -np.log(np.maximum(there, 1e-300)).sum() + 0.5 * (weights @ weights) / strength
            return float(value), np.asarray(turned @ odds.ravel() + weights / strength)

        solved = minimize(loss, np.zeros(scaled.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        return Linear(OptionFeatures.blocks, (solved.x * factors)[:, None], np.zeros(1))


def _counts(examples: Sequence[Example]) -> Rows:
    return np.array([len(example.options) for example in examples], np.int64)


def _cross_fitted(trainer: Trainer, train: Sequence[Example], fit: Callable[[Trainer, Rows], Linear]) -> tuple[Linear, Floats]:
    """The model of all examples that the trainer reads, and decisions on all of train by models without them."""
    count = len(trainer.train)
    model = fit(trainer, np.arange(count))
    inside = _places(trainer, train)
    outside = np.setdiff1d(np.arange(len(train)), inside)
    decisions = np.zeros((len(train), len(model.offsets)))
    decisions[outside] = trainer.decisions(model, [train[place] for place in outside.tolist()])
    for held in _folds(count):
        rest = np.setdiff1d(np.arange(count), held)
        part = dataclasses.replace(
            trainer, train=[trainer.train[row] for row in rest.tolist()], parts={name: one[rest] for name, one in trainer.parts.items()}
        )
        decisions[inside[held]] = fit(part, rest).decisions({name: one[held] for name, one in trainer.parts.items()})
    return model, decisions


def _folds(count: int) -> list[Rows]:
    """Rows in FOLDS parts by chance, always the same."""
    return [np.sort(part) for part in np.array_split(np.random.default_rng(0).permutation(count), min(FOLDS, count))]


def _places(trainer: Trainer, train: Sequence[Example]) -> Rows:
    """Where in train the examples stand that a trainer reads."""
    place = {id(example): number for number, example in enumerate(train)}
    return np.array([place[id(example)] for example in trainer.train], np.int64)


def _likelihood(outputs: NDArray[np.float32], classes: Rows) -> float:
    points = outputs - outputs.max(1, keepdims=True)
    return float((points[np.arange(len(classes)), classes] - np.log(np.exp(points).sum(1))).sum())


def _agreement(outputs: NDArray[np.float32], targets: Targets) -> float:
    """The log-likelihood of yes and no."""
    return float(-np.logaddexp(0, np.where(targets, -outputs, outputs)).sum())
