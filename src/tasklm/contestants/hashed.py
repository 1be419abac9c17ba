"""A model as fastText's: the mean of hashed word and word-pair embeddings, and a linear layer.

Of tags, a word has the embeddings of its own form, of its beginning and of its end, and those of
its neighbours beside it.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained, bytes_in
from tasklm.contestants.parts.bags import (
    FIRST,
    PARTS,
    Bags,
    Words,
    bags_in,
    bags_of,
    count_bags,
    encoded,
)
from tasklm.contestants.parts.encoded import (
    Encoded,
    Outputs,
    against_linear,
    reads_words,
    tuned_score,
    width_of,
)
from tasklm.contestants.parts.saved_task import read_task, write_task
from tasklm.tasks.base import Label, Task
from tasklm.tasks.examples import Example

BUCKETS, WIDTH, BATCH = 1 << 18, 64, 32
RATES, EPOCHS, PATIENCE = (0.03, 0.1), 30, 5
AFFIX = 3  # letters of a word's beginning and end
AT_ONCE = 256  # rows that are predicted together
FILE = "embeddings.safetensors"
_WORD = re.compile(r"\w+|[^\w\s]")
_number = lru_cache(1 << 20)(lambda word: zlib.crc32(word.encode("utf-8", "surrogatepass")))


def features(text: str) -> list[int]:
    """The buckets of the words of a text and of its pairs of neighbours."""
    words = [_number(word) for word in _WORD.findall(text.lower())]
    pairs = [one * 116_049_371 + other for one, other in pairwise(words)]
    return [number % BUCKETS for number in (*words, *pairs)] or [0]


def word_features(word: str) -> list[int]:
    """The buckets of a word: as it is, without capitals, its beginning and its end."""
    forms = (word, word.lower(), f"{word[:AFFIX]}-", f"-{word[-AFFIX:]}")
    return [_number(form) % BUCKETS for form in dict.fromkeys(forms)]


@dataclass(frozen=True)
class HashedTokens(Words):
    """Buckets as the tokens of texts, or of single words."""

    of_words: bool

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        buckets = {True: word_features, False: features}[self.of_words]
        return [[FIRST + bucket for bucket in buckets(text)] for text in texts]


class HashedWords:
    """The mean embeddings of bags, of two with what they share, and a linear layer."""

    def __init__(self, bags: int, outputs: int) -> None:
        self.table = torch.empty(BUCKETS, WIDTH).uniform_(-1 / WIDTH, 1 / WIDTH)
        self.linear = torch.zeros(WIDTH * PARTS[bags] + 1, outputs)
        self.flops = 0.0  # of learning
        self._squares = [torch.zeros_like(self.table), torch.zeros_like(self.linear)]

    def keep_only(self, rows: Sequence[Bags]) -> None:
        """Forgets the buckets that no training example has: nothing would be learnt of them."""
        seen = torch.zeros(BUCKETS, dtype=torch.bool)
        seen[_numbers(rows)[0]] = True
        self.table[~seen] = 0.0

    def outputs(self, rows: Sequence[Bags]) -> Tensor:
        """The outputs for some rows."""
        numbers, places = _numbers(rows)
        return _outputs(rows, self.table[numbers], places, self.linear)

    def learn(self, rows: Sequence[Bags], task: Task, targets: Tensor, rate: float) -> None:
        """One step of Adagrad; of the table, only what the rows have is touched."""
        numbers, places = _numbers(rows)
        vectors, linear = self.table[numbers].requires_grad_(), self.linear.clone().requires_grad_()
        outputs = _outputs(rows, vectors, places, linear).unsqueeze(1)
        loss = task.loss(outputs, targets) / max(1, task.count(targets))
        of_vectors, of_linear = torch.autograd.grad(loss, (vectors, linear))
        self._squares[0][numbers] += of_vectors**2
        self._squares[1] += of_linear**2
        self.table[numbers] -= rate * of_vectors / (self._squares[0][numbers].sqrt() + 1e-10)
        self.linear -= rate * of_linear / (self._squares[1].sqrt() + 1e-10)
        self.flops += 3.0 * (len(places) * WIDTH + 2 * len(rows) * self.linear.numel())

    def save(self, folder: Path) -> None:
        """Writes the rows of the table that are not 0, and the linear layer."""
        numbers = self.table.any(1).nonzero().squeeze(1)
        tensors = {"numbers": numbers, "rows": self.table[numbers], "linear": self.linear}
        save_file(tensors, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> HashedWords:
        """The model that `save` wrote."""
        tensors = load_file(folder / FILE)
        model = object.__new__(cls)
        model.table, model.flops = torch.zeros(BUCKETS, WIDTH), 0.0
        model.table[tensors["numbers"]] = tensors["rows"]
        model.linear = tensors["linear"]
        return model


def _numbers(rows: Sequence[Bags]) -> tuple[Tensor, Tensor]:
    """The buckets that rows have, each once, and the place among them of each that occurs."""
    flat: list[int] = []
    for place in range(len(rows[0])):
        for row in rows:
            flat += row[place]
    tokens = torch.tensor(flat, dtype=torch.int64) - FIRST
    numbers, places = torch.unique(tokens.clamp(min=0), return_inverse=True)
    return numbers, places


def _outputs(rows: Sequence[Bags], vectors: Tensor, places: Tensor, linear: Tensor) -> Tensor:
    bags = len(rows[0])
    lengths: list[int] = []
    for bag in range(bags):
        lengths += [len(row[bag]) for row in rows]
    offsets = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    together = functional.embedding_bag(places, vectors, offsets, mode="mean")
    means = list(torch.split(together, len(rows)))
    if len(means) == 2:
        one, other = means
        means += [(one - other).abs(), one * other]
    return torch.cat(means, 1) @ linear[:-1] + linear[-1]


def predicted(model: HashedWords, rows: Sequence[Bags]) -> Outputs:
    """The outputs for any number of rows."""
    starts = range(0, len(rows), AT_ONCE)
    parts = [model.outputs(rows[start : start + AT_ONCE]) for start in starts]
    return np.asarray(torch.cat(parts).numpy(), np.float32)


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps are too small to be shared: two threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Lessons:
    """The rows of train and dev, and what is wanted of them."""

    task: Task
    metric: str
    train: list[Bags]
    targets: Tensor
    dev: Encoded
    of_dev: list[Bags]


@dataclass(frozen=True)
class Best:
    """The best model so far, by dev."""

    dev: float
    model: HashedWords
    task: Task
    setting: str


@CONTESTANTS.register("hashed")
class Hashed(Trained):
    """Hashed words, as in fastText."""

    @classmethod
    def against(cls, task: Task) -> str:
        """Kinds whose answers are searched for."""
        return against_linear(task)

    def learn(self, job: Job) -> Learned:
        """Trains with each rate, and keeps the rate and epoch that are best on dev."""
        tokens = HashedTokens(reads_words(job.task))
        train, dev = (encoded(job.task, part, tokens) for part in (job.train, job.dev))
        count = count_bags(job.task, train.units)
        lessons = Lessons(
            job.task,
            job.metric,
            bags_of(train.units, count),
            train.targets(),
            dev,
            bags_of(dev.units, count),
        )
        with one_thread():
            trained = [_train(lessons, rate, job.seconds / len(RATES)) for rate in RATES]
        best = max((own for own, _ in trained), key=lambda own: own.dev)
        best.model.save(job.folder)
        write_task(job.folder, best.task)
        used = int(best.model.table.any(1).sum())
        return Learned(
            best.setting,
            bytes_in(job.folder),
            flops=sum(flops for _, flops in trained),
            parameters=used * WIDTH + best.model.linear.numel(),
        )

    def load(self, job: Job) -> HashedModel:
        """The embeddings and the linear layer."""
        task = read_task(job.folder)
        model = HashedWords.load(job.folder)
        count = bags_in(len(model.linear) // WIDTH)
        return HashedModel(task, HashedTokens(reads_words(task)), count, model)


@dataclass(frozen=True)
class HashedModel:
    """Trained embeddings with their task."""

    task: Task
    tokens: HashedTokens
    bags: int
    model: HashedWords

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        own = encoded(self.task, examples, self.tokens)
        return own.labels(self.task, predicted(self.model, bags_of(own.units, self.bags)))


def _train(lessons: Lessons, rate: float, seconds: float) -> tuple[Best, float]:
    """Trains until dev has not become better for some epochs, or the time is up; the best model,
    and the FLOPs of all.
    """
    torch.manual_seed(1)
    task, until = lessons.task, time.monotonic() + seconds
    model = HashedWords(len(lessons.train[0]), width_of(task))
    model.keep_only(lessons.train)
    rows = torch.arange(len(lessons.targets)).view(-1, task.together)  # answered as one
    best, since = Best(-math.inf, model, task, ""), 0
    for epoch in range(1, EPOCHS + 1):
        for groups in torch.split(torch.randperm(len(rows)), BATCH):
            if time.monotonic() > until:
                break
            own = rows[groups].flatten()
            bags = [lessons.train[row] for row in own.tolist()]
            model.learn(bags, task, lessons.targets[own], rate)
        outputs = predicted(model, lessons.of_dev)
        dev, tuned = tuned_score(task, lessons.metric, lessons.dev, outputs)
        if dev > best.dev:
            best, since = Best(dev, _copy(model), tuned, f"rate {rate:g}, epoch {epoch}"), 0
        else:
            since += 1
        if since == PATIENCE or time.monotonic() > until:
            break
    return best, model.flops


def _copy(model: HashedWords) -> HashedWords:
    """The model as it is now, for predicting."""
    copy = object.__new__(HashedWords)
    copy.table, copy.linear, copy.flops = model.table.clone(), model.linear.clone(), 0.0
    return copy
