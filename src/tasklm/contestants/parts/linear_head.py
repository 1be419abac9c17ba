"""A linear layer on vectors that stay as they are: logistic regression, and its like for every
kind whose answers are read from single places.

It minimises the task's own loss plus |weights|² / (2 · strength), as scikit-learn's
LogisticRegression does with C = strength, and dev chooses the strength.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tasklm.contestants.parts.encoded import Encoded, Outputs, tuned_score, width_of
from tasklm.tasks.base import Task

STRENGTHS = tuple(10.0**power for power in range(-4, 4))  # the larger, the freer the weights
PATIENCE = 2  # strengths that are worse than the best before them: larger ones are not tried
STEPS, AT_A_TIME = 300, 10  # of the search for weights at most, and between looks at the clock
FLATTEST = 1e-5  # slope of the loss per place at which the search ends
MOST_BYTES = 1 << 30  # of the vectors of train; of more, evenly spread examples are read
FILE = "linear.safetensors"


@dataclass(frozen=True)
class LinearHead:
    """Weights (inputs, outputs), offsets, and the mean of the training vectors."""

    weights: Tensor
    offsets: Tensor
    middle: Tensor

    def outputs(self, vectors: Outputs) -> Outputs:
        """The outputs of vectors (places, inputs)."""
        centred = torch.from_numpy(vectors) - self.middle
        return np.asarray((centred @ self.weights + self.offsets).numpy(), np.float32)

    def save(self, folder: Path) -> None:
        """Writes the layer."""
        tensors = {"weights": self.weights, "offsets": self.offsets, "middle": self.middle}
        save_file(tensors, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> LinearHead:
        """The layer that `save` wrote."""
        tensors = load_file(folder / FILE)
        return cls(tensors["weights"], tensors["offsets"], tensors["middle"])


@dataclass(frozen=True)
class Vectors:
    """Examples and the vectors of their places."""

    encoded: Encoded
    rows: Outputs


@dataclass(frozen=True)
class Chosen:
    """The layer that is best on dev, with the task as tuned there."""

    head: LinearHead
    task: Task
    dev: float
    setting: str


def best_head(task: Task, metric: str, train: Vectors, dev: Vectors, until: float) -> Chosen:
    """The layer with the strength that is best on dev, of those that the clock allows: none is
    begun after `until`, except the first.
    """
    targets = train.encoded.targets()
    middle = torch.from_numpy(train.rows.mean(0))
    centred = torch.from_numpy(train.rows) - middle
    best: Chosen | None = None
    since = 0
    start: tuple[Tensor, Tensor] | None = None
    for strength in STRENGTHS:
        if best is not None and (since == PATIENCE or time.monotonic() > until):
            break
        start = fit(task, centred, targets, strength, until, start)
        head = LinearHead(*start, middle)
        score, tuned = tuned_score(task, metric, dev.encoded, head.outputs(dev.rows))
        if best is None or score > best.dev:
            best, since = Chosen(head, tuned, score, f"strength {strength:g}"), 0
        since += score < best.dev
    assert best is not None
    return best


def fit(
    task: Task,
    vectors: Tensor,
    targets: Tensor,
    strength: float,
    until: float = math.inf,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The weights and offsets that minimise loss and penalty, by L-BFGS from those given or 0."""
    if start is None:
        outputs = width_of(task)
        start = torch.zeros(vectors.shape[1], outputs), torch.zeros(outputs)
    weights, offsets = (part.clone().requires_grad_() for part in start)
    count = max(1, task.count(targets))
    search = torch.optim.LBFGS(
        [weights, offsets],
        max_iter=AT_A_TIME,
        tolerance_grad=FLATTEST,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        whole = task.loss((vectors @ weights + offsets).unsqueeze(1), targets)
        value = (whole + weights.square().sum() / (2 * strength)) / count
        value.backward()  # type: ignore[no-untyped-call]
        return value

    before = math.inf
    for _ in range(STEPS // AT_A_TIME):
        value = float(search.step(loss).detach())  # type: ignore[no-untyped-call]
        if value >= before or time.monotonic() > until:
            break
        before = value
    return weights.detach(), offsets.detach()
