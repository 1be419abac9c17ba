"""A model as fastText's: the mean of hashed word and word-pair embeddings, and softmax."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from laptop_runs.goals import Chosen, Goal, better, loss_of
from tasklm.tasks.examples import Example, Splits

BUCKETS, WIDTH, BATCH = 1 << 18, 64, 32
RATES, EPOCHS, PATIENCE = (2e-3, 1e-2), 30, 5
_WORD = re.compile(r"\w+|[^\w\s]")
Bags = tuple[list[int], ...]  # the buckets of the texts of an example
Parts = dict[str, list[Bags]]
_number = lru_cache(1 << 20)(lambda word: zlib.crc32(word.encode("utf-8", "surrogatepass")))


def features(text: str) -> list[int]:
    """The buckets of the words of a text and of its pairs of neighbours."""
    words = [_number(word) for word in _WORD.findall(text.lower())]
    pairs = [one * 116_049_371 + other for one, other in pairwise(words)]
    return [number % BUCKETS for number in (*words, *pairs)] or [0]


class HashedWords(nn.Module):
    """The mean embeddings of one text, or of two with what they share, and a linear layer."""

    def __init__(self, texts: int, outputs: int) -> None:
        super().__init__()
        self.embeddings = nn.EmbeddingBag(BUCKETS, WIDTH, mode="mean", sparse=True)
        nn.init.uniform_(self.embeddings.weight, -1 / WIDTH, 1 / WIDTH)
        self.linear = nn.Linear(WIDTH * (4 if texts == 2 else 1), outputs)

    def forward(self, rows: Sequence[Bags]) -> Tensor:
        """The outputs of some examples, each of which is the buckets of its texts."""
        means = [self._mean([row[place] for row in rows]) for place in range(len(rows[0]))]
        if len(means) == 2:
            one, other = means
            means += [(one - other).abs(), WIDTH * one * other]
        return self.linear(torch.cat(means, 1))

    def _mean(self, bags: Sequence[list[int]]) -> Tensor:
        offsets = np.cumsum([0, *(len(bag) for bag in bags[:-1])])
        flat = np.concatenate([np.array(bag, np.int64) for bag in bags])
        return self.embeddings(torch.from_numpy(flat), torch.from_numpy(offsets))


def hashed_words(splits: Splits, goal: Goal, seconds: float) -> Chosen:
    """Scores of the rate and epoch that are best on dev, found in so many seconds at most."""
    parts = {name: _bags(part) for name, part in splits.named().items()}
    best: Chosen | None = None
    for rate in RATES:
        until = time.monotonic() + seconds / len(RATES)
        best = better(best, _trained(parts, splits, goal, rate, until))
    assert best is not None
    return best


def _bags(examples: Sequence[Example]) -> list[Bags]:
    return [tuple(features(text) for text in example.texts) for example in examples]


def _trained(parts: Parts, splits: Splits, goal: Goal, rate: float, until: float) -> Chosen:
    """Trains until dev has not become better for some epochs, or the time is up."""
    torch.manual_seed(1)
    model = HashedWords(len(parts["train"][0]), goal.outputs)
    sparse = torch.optim.SparseAdam(model.embeddings.parameters(), lr=rate)
    dense = torch.optim.Adam(model.linear.parameters(), lr=rate)
    targets, best, worse = torch.from_numpy(goal.targets(splits.train)), None, 0
    for epoch in range(1, EPOCHS + 1):
        for rows in torch.randperm(len(targets)).split(BATCH):
            if time.monotonic() > until:
                break
            loss = loss_of(model([parts["train"][row] for row in rows]), targets[rows])
            model.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
        dev = goal.score(_outputs(model, parts["dev"]), splits.dev)
        test = goal.score(_outputs(model, parts["test"]), splits.test)
        at = Chosen(dev, test, f"rate {rate:g}, epoch {epoch}")
        worse = 0 if best is None or at.dev > best.dev else worse + 1
        best = better(best, at)
        if worse == PATIENCE or time.monotonic() > until:
            break
    return best


@torch.no_grad()
def _outputs(model: HashedWords, rows: Sequence[Bags]) -> np.ndarray:
    batches = [model(rows[start : start + 256]) for start in range(0, len(rows), 256)]
    return torch.cat(batches).numpy()
