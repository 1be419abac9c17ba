"""What is measured on a task: coverage, and what was compared on dev to choose the method."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from label_set_runs.data import SPLITS, Fitted, Floats
from tasklm.corpus.words import words
from tasklm.coverage.calibration import Calibration, Seen
from tasklm.coverage.known_words import KnownWords
from tasklm.coverage.measured import measured
from tasklm.coverage.quantiles import alpha_of, expected_interval, threshold, thresholds
from tasklm.tasks.answer_sets import POOLED
from tasklm.tasks.examples import Example

PROMISED = (0.90, 0.95)
FALSE_ALARMS = 0.01
ROUNDS, DRAWS = 20, 50  # halves of dev; dev and test drawn apart again
LETTERS = 1 << 15  # cells of the counts of letters


def result_of(name: str, kind: str, fitted: Fitted, strangers: Sequence[str]) -> dict[str, Any]:
    """Everything that is measured on a task."""
    sets = fitted.task.sets
    assert sets is not None
    train, dev, test = (fitted.examples[split] for split in SPLITS)
    calibration = Calibration.of(sets, train, dev, fitted.answers["dev"])
    kept = [
        measured(sets, calibration, promised, test, fitted.answers["test"]).to_dict()
        for promised in PROMISED
    ]
    return {
        "task": name,
        "kind": kind,
        "labels": len(fitted.task.labels),
        "train": len(train),
        "dev": len(dev),
        "test": len(test),
        "measured": kept,
        "redrawn": [redrawn(calibration.words, fitted, promised) for promised in PROMISED],
        "folds": [of_folds(fitted, promised) for promised in PROMISED],
        "orders": orders(fitted) if sets.grouped else {},
        "by_class": by_class(fitted) if sets.grouped else [],
        "strange": strange(train, dev, test, strangers),
    }


def of_folds(fitted: Fitted, promised: float) -> dict[str, Any]:
    """The coverage on dev of a threshold from out-of-fold answers, and where it belongs."""
    of_train, of_dev = np.sort(fitted.strangeness("train")), fitted.strangeness("dev")
    law = expected_interval(len(of_train), alpha_of(promised), len(of_dev))
    most = threshold(of_train, alpha_of(promised))
    return {"coverage": float((of_dev <= most).mean()), "low": law.low, "high": law.high}


def redrawn(known: KnownWords, fitted: Fitted, promised: float) -> float:
    """The mean coverage where dev and test are put together and drawn apart again."""
    sets = fitted.task.sets
    assert sets is not None
    examples = [*fitted.examples["dev"], *fitted.examples["test"]]
    groups = np.array([sets.group(example.label) for example in examples])
    shares = np.array([known.share_of_new(example.text) for example in examples])
    strangeness = np.concatenate([fitted.strangeness("dev"), fitted.strangeness("test")])
    draw, covered = np.random.default_rng(1), []
    for _ in range(DRAWS):
        places = draw.permutation(len(examples))
        own, others = np.split(places, [len(fitted.examples["dev"])])
        own = own[np.argsort(strangeness[own], kind="stable")]
        seen = {
            str(name): Seen(strangeness[own[groups[own] == name]], shares[own[groups[own] == name]])
            for name in np.unique(groups[own])
        }
        promise = Calibration(seen, known).promise(promised)
        limits = np.array([promise.limit(name) for name in groups[others]])
        hits = (strangeness[others] <= limits) & (shares[others] <= promise.newest)
        covered.append(float(hits.mean()))
    return float(np.mean(covered))


def by_class(fitted: Fitted) -> list[dict[str, list[float]]]:
    """At each promise the mean size of sets and the lowest coverage of a class with 20 or more
    examples, of one threshold for all and of thresholds by class; on halves of dev.
    """
    labels, answers = fitted.task.labels, fitted.answers["dev"]
    odds = np.array([[one["probabilities"][label] for label in labels] for one in answers])
    right = np.array([labels.index(one.label) for one in fitted.examples["dev"]])
    results = []
    for promised in PROMISED:
        draw = np.random.default_rng(0)
        found: dict[str, list[list[float]]] = {"one": [], "by class": []}
        for _ in range(ROUNDS):
            one, other = np.array_split(draw.permutation(len(right)), 2)
            own = 1 - odds[one, right[one]]
            every = {
                name: np.sort(own[right[one] == number])
                for number, name in enumerate(labels)
                if (right[one] == number).any()
            }
            limits = thresholds(every, alpha_of(promised))
            by = {
                "one": np.full(len(labels), limits[POOLED]),
                "by class": np.array([limits.get(name, limits[POOLED]) for name in labels]),
            }
            for name, most in by.items():
                inside = 1 - odds[other] <= most
                hits = inside[np.arange(len(other)), right[other]]
                enough = [
                    place for place in range(len(labels)) if (right[other] == place).sum() >= 20
                ]
                lowest = min((hits[right[other] == place].mean() for place in enough), default=1.0)
                found[name].append([float(inside.sum(1).mean()), float(lowest)])
        results.append({name: np.mean(own, 0).tolist() for name, own in found.items()})
    return results


def orders(fitted: Fitted) -> dict[str, list[float]]:
    """The mean size of sets of each order at each promise, from one half of dev on the other."""
    labels, answers = fitted.task.labels, fitted.answers["dev"]
    odds = np.array([[one["probabilities"][label] for label in labels] for one in answers])
    right = np.array([labels.index(one.label) for one in fitted.examples["dev"]])
    draw = np.random.default_rng(0)
    sizes: dict[str, list[float]] = {}
    for name, order in ORDERS.items():
        strangeness = order(odds, draw)
        sizes[name] = []
        for promised in PROMISED:
            every = []
            for _ in range(ROUNDS):
                one, other = np.array_split(draw.permutation(len(right)), 2)
                most = threshold(np.sort(strangeness[one, right[one]]), alpha_of(promised))
                every.append(float((strangeness[other] <= most).sum(1).mean()))
            sizes[name].append(float(np.mean(every)))
    return sizes


def added_up(odds: Floats, least: Floats, price: float = 0.0) -> Floats:
    """The probabilities of all likelier classes and a share of the own one (APS); RAPS adds a
    price for each class after the first.
    """
    order = np.argsort(-odds, 1, kind="stable")
    there = np.take_along_axis(odds, order, 1)
    sums = np.cumsum(there, 1) - least[:, None] * there + price * np.arange(odds.shape[1])
    strangeness = np.empty_like(sums)
    np.put_along_axis(strangeness, order, sums, 1)
    return strangeness


ORDERS: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "LAC": lambda odds, draw: 1 - odds,
    "APS, at random": lambda odds, draw: added_up(odds, draw.random(len(odds))),
    "APS": lambda odds, draw: added_up(odds, np.zeros(len(odds))),
    "RAPS": lambda odds, draw: added_up(odds, np.zeros(len(odds)), 0.05),
}


def strange(
    train: Sequence[Example],
    dev: Sequence[Example],
    test: Sequence[Example],
    strangers: Sequence[str],
) -> dict[str, list[float]]:
    """How many texts of test and of other tasks are taken for strange where 1 % of dev is."""
    known = KnownWords.of(example.text for example in train)
    letters = unlikely_letters(example.text for example in train)
    shares = {}
    for name, measure in (("new words", known.share_of_new), ("unlikely letters", letters)):
        of_dev = np.sort([measure(example.text) for example in dev])
        most = math.floor(FALSE_ALARMS * (len(dev) + 1))
        if most:
            groups = [[example.text for example in test[:2000]], list(strangers)]
            found = [[measure(text) > of_dev[-most] for text in texts] for texts in groups]
            shares[name] = [float(np.mean(one)) for one in found]
    return shares


def unlikely_letters(texts: Iterable[str]) -> Callable[[str], float]:
    """The mean surprise of the letter triples of a text, after those of some texts."""
    counts = np.zeros(LETTERS)
    for text in texts:
        np.add.at(counts, triples(text), 1)
    surprise = -np.log((counts + 0.5) / (counts + 0.5).sum())
    return lambda text: float(surprise[triples(text)].mean()) if triples(text) else math.inf


def triples(text: str) -> list[int]:
    """The cells of the letter triples of a text."""
    line = f" {' '.join(words(text))} "
    return [zlib.crc32(line[at : at + 3].encode()) % LETTERS for at in range(len(line) - 2)]
