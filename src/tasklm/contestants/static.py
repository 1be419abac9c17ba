"""Static word vectors counted in raw text: their mean over a text, and a linear layer.

The vectors are those that the package's linear models can read; rare words weigh more in the mean
of a text. Of tags, a word has its own vector and those of its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained, bytes_in
from tasklm.contestants.parts.bags import (
    FIRST,
    PARTS,
    UNK,
    Bags,
    Words,
    bags_in,
    bags_of,
    count_bags,
    encoded,
    side_by_side,
)
from tasklm.contestants.parts.encoded import (
    Encoded,
    Outputs,
    against_linear,
    evenly_within,
)
from tasklm.contestants.parts.linear_head import MOST_BYTES, LinearHead, Vectors, best_head
from tasklm.contestants.parts.raw_text import clean_passages
from tasklm.contestants.parts.saved_task import read_task, write_task
from tasklm.corpus.words import words
from tasklm.errors import RunError
from tasklm.storage.files import make_folder
from tasklm.tasks.base import Label, Task
from tasklm.tasks.baselines.text_vectors import TextVectors, WordVectors
from tasklm.tasks.examples import Example
from tasklm.train.init.word_vectors import word_vectors

WIDTH = 256
VECTORS = "vectors"


@dataclass(frozen=True)
class VectorTokens(Words):
    """The words that have a vector as the tokens of texts; others are left out."""

    vectors: WordVectors

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        numbers = self.vectors.numbers
        return [[FIRST + numbers[one] for one in words(text) if one in numbers] for text in texts]

    @cached_property
    def table(self) -> Outputs:
        """The weighted vector of each token, zeros for those that stand for no word."""
        none = np.zeros((FIRST, self.vectors.table.shape[1]))
        return np.concatenate([none, self.vectors.weighted], dtype=np.float32)

    def rows(self, bags: Sequence[Bags]) -> Outputs:
        """The vectors of places from the means of their bags."""
        parts = []
        for number in range(len(bags[0])):
            means = np.zeros((len(bags), self.table.shape[1]), np.float32)
            for row, own in enumerate(bags):
                tokens = [token for token in own[number] if token != UNK]
                if tokens:
                    means[row] = self.table[tokens].mean(0)
            parts.append(means)
        return side_by_side(parts)


@CONTESTANTS.register("static")
class Static(Trained):
    """Static vectors of the corpus and of the training texts, and a linear layer."""

    @classmethod
    def against(cls, task: Task) -> str:
        """Kinds whose answers are searched for."""
        return against_linear(task)

    def learn(self, job: Job) -> Learned:
        """Counts the vectors, and fits the layer with the strength that is best on dev."""
        until = time.monotonic() + job.seconds
        vectors = word_vectors(_texts(job), width=WIDTH)
        if vectors is None:
            raise RunError("no word is frequent enough for a vector; give more text (--corpus).")
        tokens = VectorTokens(vectors)
        train, dev = (encoded(job.task, part, tokens) for part in (job.train, job.dev))
        count = count_bags(job.task, train.units)
        train = _within(job, train, tokens, MOST_BYTES // (4 * WIDTH * PARTS[count]))
        chosen = best_head(
            job.task,
            job.metric,
            Vectors(train, tokens.rows(bags_of(train.units, count))),
            Vectors(dev, tokens.rows(bags_of(dev.units, count))),
            until,
        )
        middle = np.zeros(vectors.table.shape[1], np.float32)
        make_folder(job.folder / VECTORS)
        TextVectors(vectors, middle).save(job.folder / VECTORS)
        chosen.head.save(job.folder)
        write_task(job.folder, chosen.task)
        return Learned(
            f"{len(vectors.words):,} words, {chosen.setting}",
            bytes_in(job.folder),
            parameters=vectors.table.size + chosen.head.weights.numel(),
            reads_text=bool(job.recipe.data.corpus),
        )

    def load(self, job: Job) -> StaticModel:
        """The vectors and the layer."""
        saved, task = TextVectors.load(job.folder / VECTORS), read_task(job.folder)
        assert saved is not None
        head = LinearHead.load(job.folder)
        count = bags_in(len(head.weights) // saved.vectors.table.shape[1])
        return StaticModel(task, VectorTokens(saved.vectors), count, head)


@dataclass(frozen=True)
class StaticModel:
    """Word vectors and a linear layer with their task."""

    task: Task
    tokens: VectorTokens
    bags: int
    head: LinearHead

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        own = encoded(self.task, examples, self.tokens)
        outputs = self.head.outputs(self.tokens.rows(bags_of(own.units, self.bags)))
        return own.labels(self.task, outputs)


def _texts(job: Job) -> Iterator[list[str]]:
    """Yields the training texts, then those of the corpus."""
    yield [example.text for example in job.train]
    yield from clean_passages(job)


def _within(job: Job, train: Encoded, tokens: VectorTokens, most: int) -> Encoded:
    """Evenly spread examples of train with at most so many places; all if they have no more."""
    chosen = evenly_within(train, most)
    if len(chosen) == len(job.train):
        return train
    return encoded(job.task, [job.train[place] for place in chosen], tokens)
