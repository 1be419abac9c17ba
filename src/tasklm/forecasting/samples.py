"""Folds of the training examples, and nested samples of the rest.

Held-out examples must be as different from the rest as dev is from train. Neighbours in a file
often come from one document, so short runs of them stay together. Many data sets contain near
copies: one sentence with other markers, one premise with other hypotheses. If dev shares fewer of
its texts with train than train does with itself, examples that share a text with a held-out one are
left out of the rest, just as examples of train that also occur in dev are left out of train.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError
from tasklm.tasks.examples import Example

Rows = NDArray[np.int64]
FOLDS = 5
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the examples not held out: the sizes of nested samples
FEWEST = 40  # training examples that a learning curve needs
RUN, RUNS = 50, 40  # longest run of neighbours, and fewest runs
_LETTERS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Fold:
    """A held-out part, and nested samples of the rest, the smallest first."""

    held: Rows
    samples: tuple[Rows, ...]


def text_keys(example: Example) -> set[str]:
    """The texts of an example without case, marks, punctuation and spaces; none is empty."""
    count = len(example.texts) - len(
        example.options
    )  # options of a choice do not count as shared texts
    keys = {_LETTERS.sub("", text.lower()) for text in example.texts[:count]}
    return keys - {""}


def shares_texts(train: Sequence[Example], dev: Sequence[Example]) -> bool:
    """Whether examples of train share texts with each other far more often than with dev."""
    keys = [text_keys(example) for example in train]
    counts: Counter[str] = Counter()
    for own in keys:
        counts.update(own)
    inside = sum(any(counts[key] > 1 for key in own) for own in keys) / max(1, len(keys))
    others = sum(any(counts[key] for key in text_keys(example)) for example in dev)
    outside = others / max(1, len(dev))
    return inside > 0.01 and outside < inside / 2


def folds_of(train: Sequence[Example], dev: Sequence[Example], seed: int = 0) -> Iterator[Fold]:
    """Folds that hold out each example once, always the same; samples are nested."""
    count = len(train)
    if count < FEWEST:
        raise DataError(
            f"{count} training examples are too few for a forecast: it needs at least {FEWEST}",
            remedy="Add labelled examples, or train directly with tasklm fit.",
        )
    run = max(1, min(RUN, count // RUNS))
    runs = np.arange(count) // run
    drawn = np.random.default_rng(seed).permutation(int(runs.max()) + 1)
    order = np.argsort(drawn[runs], kind="stable")
    shared = shares_texts(train, dev)
    cuts = np.round(np.linspace(0, runs.max() + 1, FOLDS + 1)).astype(int)
    of_fold = np.searchsorted(cuts, _places(runs[order]), side="right") - 1
    for fold in range(FOLDS):
        held = order[of_fold == fold]
        # starting after the held-out part, so that the small samples of the folds differ
        rest = np.concatenate([order[of_fold > fold], order[of_fold < fold]])
        if shared:
            rest = _apart(rest, held, train)
        if len(rest) >= FEWEST // 2:
            sizes = [max(1, round(share * len(rest))) for share in SHARES]
            yield Fold(np.sort(held), tuple(np.sort(rest[:size]) for size in sizes))


def _places(ordered: Rows) -> Rows:
    """The number of the run of each example, in the order of the runs."""
    begins = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
    return np.asarray(np.searchsorted(begins, np.arange(len(ordered)), side="right") - 1, np.int64)


def _apart(rest: Rows, held: Rows, train: Sequence[Example]) -> Rows:
    """The rest without examples that share a text with a held-out one."""
    keys: set[str] = set()
    for place in held:
        keys |= text_keys(train[place])
    return np.array([place for place in rest if not keys & text_keys(train[place])], np.int64)
