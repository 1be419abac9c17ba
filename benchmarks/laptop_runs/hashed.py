"""A model as fastText's: the mean of hashed word and word-pair embeddings, and softmax."""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laptop_runs.goals import Chosen, Goal, loss_of
from tasklm.tasks.examples import Example, Splits

BUCKETS, WIDTH, BATCH = 1 << 18, 64, 32
RATES, EPOCHS, PATIENCE = (0.03, 0.1), 30, 5
_WORD = re.compile(r"\w+|[^\w\s]")
Bags = tuple[list[int], ...]  # the buckets of the texts of an example
Parts = dict[str, list[Bags]]
_number = lru_cache(1 << 20)(lambda word: zlib.crc32(word.encode("utf-8", "surrogatepass")))


def features(text: str) -> list[int]:
    """The buckets of the words of a text and of its pairs of neighbours."""
    words = [_number(word) for word in _WORD.findall(text.lower())]
    pairs = [one * 116_049_371 + other for one, other in pairwise(words)]
    return [number % BUCKETS for number in (*words, *pairs)] or [0]


class HashedWords:
    """The mean embeddings of one text, or of two with what they share, and a linear layer."""

    def __init__(self, texts: int, outputs: int) -> None:
        self.table = torch.empty(BUCKETS, WIDTH).uniform_(-1 / WIDTH, 1 / WIDTH)
        self.linear = torch.zeros(WIDTH * (4 if texts == 2 else 1) + 1, outputs)
        self._squares = [torch.zeros_like(self.table), torch.zeros_like(self.linear)]

    def outputs(self, rows: Sequence[Bags]) -> Tensor:
        """The outputs for some examples."""
        numbers, places = _numbers(rows)
        return _outputs(rows, self.table[numbers], places, self.linear)

    def learn(self, rows: Sequence[Bags], targets: Tensor, rate: float) -> None:
        """One step of Adagrad; of the table, only what the examples have is touched."""
        numbers, places = _numbers(rows)
        vectors, linear = self.table[numbers].requires_grad_(), self.linear.clone().requires_grad_()
        loss = loss_of(_outputs(rows, vectors, places, linear), targets)
        of_vectors, of_linear = torch.autograd.grad(loss, (vectors, linear))
        self._squares[0][numbers] += of_vectors**2
        self._squares[1] += of_linear**2
        self.table[numbers] -= rate * of_vectors / (self._squares[0][numbers].sqrt() + 1e-10)
        self.linear -= rate * of_linear / (self._squares[1].sqrt() + 1e-10)


def _numbers(rows: Sequence[Bags]) -> tuple[Tensor, Tensor]:
    """The buckets that examples have, each once, and the place among them of each that occurs."""
    flat = [bag for place in range(len(rows[0])) for row in rows for bag in row[place]]
    return torch.unique(torch.tensor(flat), return_inverse=True)


def _outputs(rows: Sequence[Bags], vectors: Tensor, places: Tensor, linear: Tensor) -> Tensor:
    lengths = [len(row[place]) for place in range(len(rows[0])) for row in rows]
    offsets = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    means = list(functional.embedding_bag(places, vectors, offsets, mode="mean").split(len(rows)))
    if len(means) == 2:
        one, other = means
        means += [(one - other).abs(), one * other]
    return torch.cat(means, 1) @ linear[:-1] + linear[-1]


def hashed_words(splits: Splits, goal: Goal, seconds: float) -> Chosen:
    """Scores of the rate and epoch that are best on dev, found in so many seconds at most."""
    parts = {name: _bags(part) for name, part in splits.named().items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steps are too small to be shared: two would wait for each other
    try:
        runs = [_trained(parts, splits, goal, rate, seconds / len(RATES)) for rate in RATES]
    finally:
        torch.set_num_threads(threads)
    return max(runs, key=lambda run: run.dev)


def _bags(examples: Sequence[Example]) -> list[Bags]:
    return [tuple(features(text) for text in example.texts) for example in examples]


def _trained(parts: Parts, splits: Splits, goal: Goal, rate: float, seconds: float) -> Chosen:
    """Trains until dev has not become better for some epochs, or the time is up."""
    torch.manual_seed(1)
    until = time.monotonic() + seconds
    model = HashedWords(len(parts["train"][0]), goal.outputs)
    targets = torch.from_numpy(goal.targets(splits.train))
    best, since = Chosen(-math.inf, 0.0, ""), 0
    for epoch in range(1, EPOCHS + 1):
        for rows in torch.randperm(len(targets)).split(BATCH):
            if time.monotonic() > until:
                break
            model.learn([parts["train"][row] for row in rows.tolist()], targets[rows], rate)
        dev = goal.score(_predicted(model, parts["dev"]), splits.dev)
        test = goal.score(_predicted(model, parts["test"]), splits.test)
        at = Chosen(dev, test, f"rate {rate:g}, epoch {epoch}")
        best, since = (at, 0) if at.dev > best.dev else (best, since + 1)
        if since == PATIENCE or time.monotonic() > until:
            break
    return best


def _predicted(model: HashedWords, rows: Sequence[Bags]) -> np.ndarray:
    starts = range(0, len(rows), 256)
    return torch.cat([model.outputs(rows[start : start + 256]) for start in starts]).numpy()
