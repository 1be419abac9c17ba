"""Fits the wide parts of models: settings are chosen on dev, outputs for train are out of fold."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats, Label, Metric, score
from tasklm.tasks.baselines.featuriser import MOST_FEATURES, evenly
from tasklm.tasks.baselines.linear import (
    MOST_WEIGHTS,
    ChosenClasses,
    Linear,
    Setting,
    Targets,
    Trainer,
    best_of,
    matrix_of,
    thinned,
    thinned_places,
)
from tasklm.tasks.baselines.option_features import OptionFeatures
from tasklm.tasks.baselines.tag_fitting import fit_linear
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.wide import Wide, outputs_of
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.baselines.word_features import WordFeatures
from tasklm.tasks.examples import Example

FOLDS = 5
SCALES = np.geomspace(
    0.2, 20, 41
)  # of decisions, of which that with the likeliest labels of train is taken
OFFSETS = np.linspace(-4, 4, 33)
OPTION_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # the larger, the freer the weights
USUAL_OPTIONS = 0.3
MOST_TAGGED, TAG_FOLDS = (
    400_000,
    3,
)  # words of sentences that are read, and parts that are held out in turn
CHOOSING = 4000  # examples that choose a strength, at most
_STEPS = 60  # of the search for weights of options, at most
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Refit:
    """Fits the setting that was chosen again, to some of the training examples that were read."""

    places: Rows  # of the examples that were read among all of train
    fit: Callable[[Rows], Linear]  # of some of these, by their number
    decisions: Callable[[Linear, Rows], Floats]  # of a model on others of these


@dataclass(frozen=True)
class FittedWide:
    """A wide part, and what is added to the outputs of each training unit by models that were
    fitted without it.
    """

    wide: AnyWide
    train: NDArray[np.float32]
    refit: Refit | None = None  # of one task


def fit_classes(chosen: ChosenClasses, train: Sequence[Example]) -> FittedWide:
    """The wide part of a classifier with the chosen setting."""
    trainer = chosen.trainer
    model, decisions, refit = _cross_fitted(
        trainer, train, lambda own, rows: own.fit(chosen.targets[rows], chosen.setting)
    )
    own = decisions[trainer.places]
    likely = [
        _likelihood(outputs_of("classes", own, scale, 0.0), chosen.classes) for scale in SCALES
    ]
    scale = float(SCALES[int(np.argmax(likely))])
    wide = Wide(
        "classes", trainer.featuriser.narrowed(model.view), model, scale, setting=chosen.setting
    )
    return FittedWide(wide, outputs_of("classes", decisions, wide.scale, 0.0), refit)


def fit_labels(
    trainer: Trainer, targets: Targets, setting: Setting, train: Sequence[Example]
) -> FittedWide:
    """The wide part of a multi-label model, with one yes-or-no output per label."""
    model, decisions, refit = _cross_fitted(
        trainer, train, lambda own, rows: own.fit(targets[rows], setting)
    )
    own = decisions[trainer.places]
    tried = [
        (_agreement(outputs_of("labels", own, scale, offset), targets), scale, offset)
        for scale, offset in itertools.product(SCALES, OFFSETS)
    ]
    _, scale, offset = max(tried)
    wide = Wide(
        "labels",
        trainer.featuriser.narrowed(model.view),
        model,
        float(scale),
        float(offset),
        setting,
    )
    return FittedWide(wide, outputs_of("labels", decisions, wide.scale, wide.offset), refit)


def fit_score(
    trainer: Trainer,
    train: Sequence[Example],
    solve: Callable[[dict[str, Any], Rows], Linear],
    bounds: tuple[float, float],
    setting: Setting,
) -> FittedWide:
    """The wide part of a regression between two bounds; `solve` fits the features of some rows."""
    model, decisions, refit = _cross_fitted(
        trainer, train, lambda own, rows: solve(own.parts, rows)
    )
    low, high = bounds
    span = (high - low) or 1.0
    wide = Wide(
        "score", trainer.featuriser.narrowed(model.view), model, 1 / span, -low / span, setting
    )
    return FittedWide(wide, outputs_of("score", decisions, wide.scale, wide.offset), refit)


def fit_options(
    train: Sequence[Example], dev: Sequence[Example], metric: Metric, together: int
) -> FittedWide:
    """The wide part of a choice: a softmax over the options of each example (conditional logit).

    As many examples are read as other linear models read.
    """
    places = np.array(thinned_places(train), np.int64)
    some = [train[place] for place in places]
    features = OptionFeatures.fit(some, together)
    trainer = OptionTrainer(
        features.parts(some),
        option_counts(some),
        np.array([example.label for example in some]),
        together,
    )
    strength = _chosen_strength(trainer, features, evenly(thinned(dev), CHOOSING), metric)
    everything = np.arange(len(some))

    def decided(model: Linear, rows: Rows) -> Floats:
        return model.decisions(rows_of(trainer.parts, trainer.rows(rows)))

    refit = Refit(places, lambda rows: trainer.fit(rows, strength), decided)
    setting = Setting(features.blocks, strength)
    wide = Wide("options", features, refit.fit(everything), setting=setting)
    decisions = np.zeros((len(train), together, 1))
    outside = np.setdiff1d(np.arange(len(train)), places)
    unread = wide.decisions([train[place] for place in outside.tolist()])
    decisions[outside] = unread.reshape(-1, together, 1)
    for held in folds_of(len(some)):
        fitted = refit.fit(np.setdiff1d(everything, held))
        decisions[places[held]] = decided(fitted, held).reshape(-1, together, 1)
    return FittedWide(wide, outputs_of("options", decisions.reshape(-1, 1), 1.0, 0.0), refit)


def fit_tags(
    train: Sequence[Example],
    labels: Sequence[str],
    characters: bool,
    vectors: WordVectors | None = None,
) -> FittedWide | None:
    """The wide part of a tagger: softmax regression for each word; None if there is nothing to
    learn.
    """
    places = np.array(some_sentences(train), np.int64)
    some = [train[place] for place in places]
    clusters = None if vectors is None else vectors.clusters()
    most = min(MOST_FEATURES, MOST_WEIGHTS // len(labels))
    features, parts = WordFeatures.fit_parts(some, characters, most, clusters)
    if len(labels) < 2 or not features.tokens:
        return None
    matrix = parts["context"]
    number = {label: row for row, label in enumerate(labels)}
    names = itertools.chain.from_iterable(example.label or [labels[0]] for example in some)
    tags = np.array([number[name] for name in names], np.int64)
    wide = Wide("tags", features, fit_linear(matrix, tags, len(labels)))
    counts = features.counts(train)
    rows = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])  # of each sentence
    own = np.split(np.arange(len(tags)), np.cumsum([counts[place] for place in places])[:-1])
    decisions = wide.decisions(train)

    def words_of(sentences: Rows) -> Rows:
        return np.concatenate([own[sentence] for sentence in sentences])

    def fitted_to(sentences: Rows) -> Linear:
        inside = words_of(sentences)
        return fit_linear(matrix[inside], tags[inside], len(labels))

    def decided(model: Linear, sentences: Rows) -> Floats:
        return model.decisions({"context": matrix[words_of(sentences)]})

    for held in folds_of(len(some), TAG_FOLDS):
        fitted = fitted_to(np.setdiff1d(np.arange(len(some)), held))
        of_held = np.concatenate([rows[places[sentence]] for sentence in held])
        decisions[of_held] = decided(fitted, held)
    refit = Refit(places, fitted_to, decided)
    return FittedWide(wide, outputs_of("tags", decisions, 1.0, 0.0), refit)


def some_sentences(train: Sequence[Example]) -> list[int]:
    """The positions of evenly spread sentences with at most MOST_TAGGED words in total."""
    words = sum(len(example.words) for example in train)
    return evenly(range(len(train)), len(train) * MOST_TAGGED // max(words, MOST_TAGGED))


def _chosen_strength(
    trainer: OptionTrainer, features: OptionFeatures, dev: Sequence[Example], metric: Metric
) -> float:
    """The strength that is best on dev, by fits to a part of train."""
    if not dev:
        return USUAL_OPTIONS
    some = np.array(evenly(range(len(trainer.right)), CHOOSING))
    of_dev, counts = features.parts(dev), option_counts(dev)
    gold: list[Label] = [example.label for example in dev]

    def judged(settings: Sequence[Setting]) -> list[float]:
        fits = [trainer.fit(some, setting.strength).decisions(of_dev) for setting in settings]
        return [
            score(metric, gold, best_options(decisions, counts, trainer.together))
            for decisions in fits
        ]

    return best_of([Setting(features.blocks, USUAL_OPTIONS)], OPTION_STRENGTHS, judged)[0].strength


def best_options(decisions: Floats, counts: Rows, together: int) -> list[Label]:
    """The number of the option with the most points in each example."""
    points = decisions.reshape(-1, together)
    points = np.where(np.arange(together) < counts[:, None], points, -np.inf)
    return [int(best) for best in points.argmax(1)]


@dataclass(frozen=True)
class OptionTrainer:
    """Options of training examples with their features: fits weights to some of them."""

    parts: dict[str, Any]
    counts: Rows  # options of each example
    right: Rows
    together: int

    def rows(self, examples: Rows) -> Rows:
        """The rows of the options of some examples."""
        return np.asarray((examples[:, None] * self.together + np.arange(self.together)).ravel())

    def fit(self, examples: Rows, strength: float) -> Linear:
        """The weights of maximum likelihood of the right options, with an L2 penalty."""
        from scipy.optimize import minimize
        from scipy.sparse import diags

        matrix = matrix_of(rows_of(self.parts, self.rows(examples)), OptionFeatures.blocks)
        mean = np.asarray(matrix.mean(0)).ravel()
        spread = np.sqrt(
            np.maximum(np.asarray(matrix.multiply(matrix).mean(0)).ravel() - mean**2, 0.0)
        )
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

        solved = minimize(
            loss,
            np.zeros(scaled.shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _STEPS},
        )
        return Linear(OptionFeatures.blocks, (solved.x * factors)[:, None], np.zeros(1))


def option_counts(examples: Sequence[Example]) -> Rows:
    """The number of options of each example."""
    return np.array([len(example.options) for example in examples], np.int64)


def _cross_fitted(
    trainer: Trainer, train: Sequence[Example], fit: Callable[[Trainer, Rows], Linear]
) -> tuple[Linear, Floats, Refit]:
    """The model of all examples that the trainer reads, decisions on all of train by models without
    them, and what fits it again.
    """

    def decided(model: Linear, rows: Rows) -> Floats:
        return model.decisions(rows_of(trainer.parts, rows))

    count = len(trainer.train)
    refit = Refit(trainer.places, lambda rows: fit(_part(trainer, rows), rows), decided)
    model = fit(trainer, np.arange(count))
    outside = np.setdiff1d(np.arange(len(train)), trainer.places)
    decisions = np.zeros((len(train), len(model.offsets)))
    decisions[outside] = trainer.decisions(model, [train[place] for place in outside.tolist()])
    for held in folds_of(count):
        decisions[trainer.places[held]] = decided(
            refit.fit(np.setdiff1d(np.arange(count), held)), held
        )
    return model, decisions, refit


def _part(trainer: Trainer, rows: Rows) -> Trainer:
    """The trainer of some of its examples."""
    train = [trainer.train[row] for row in rows.tolist()]
    return dataclasses.replace(
        trainer, train=train, places=trainer.places[rows], parts=rows_of(trainer.parts, rows)
    )


def rows_of(parts: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """Some rows of the matrix of each block."""
    return {name: matrix[rows] for name, matrix in parts.items()}


def folds_of(count: int, folds: int = FOLDS) -> list[Rows]:
    """Rows in random parts, always the same; empty if there is no other row to learn from."""
    if count < 2:
        return []
    return [
        np.sort(part)
        for part in np.array_split(np.random.default_rng(0).permutation(count), min(folds, count))
    ]


def _likelihood(outputs: NDArray[np.float32], classes: Rows) -> float:
    points = outputs - outputs.max(1, keepdims=True)
    return float((points[np.arange(len(classes)), classes] - np.log(np.exp(points).sum(1))).sum())


def _agreement(outputs: NDArray[np.float32], targets: Targets) -> float:
    """The log-likelihood of yes and no."""
    return float(-np.logaddexp(0, np.where(targets, -outputs, outputs)).sum())
