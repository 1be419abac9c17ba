"""A downloaded encoder as it is: a linear layer on its vectors of texts, or of words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from tasklm.contestants.base import CONTESTANTS, Job, Learned, bytes_in
from tasklm.contestants.parts.bags import (
    LONGEST,
    OF_WORDS,
    PARTS,
    bags_in,
    count_bags,
    side_by_side,
)
from tasklm.contestants.parts.encoded import (
    Encoded,
    Outputs,
    against_linear,
    evenly_within,
    reads_words,
)
from tasklm.contestants.parts.linear_head import MOST_BYTES, LinearHead, Vectors, best_head
from tasklm.contestants.parts.saved_task import read_task, write_task
from tasklm.contestants.parts.sentence_model import (
    SentenceModel,
    files_of,
    model_folder,
    require_transformers,
    rows_by_length,
)
from tasklm.errors import RunError
from tasklm.run_folder import is_run
from tasklm.tasks.base import Label, Task, Unit
from tasklm.tasks.examples import Example

FIRST = 64  # examples of dev that show how fast the model reads
LEAST = 200  # training examples that are read even where the time does not allow for them
SHARES = (0.2, 0.7)  # of the time, for reading dev and train


class Reader:
    """Turns examples into vectors."""

    def __init__(self, model: SentenceModel, task: Task, bags: int = 1) -> None:
        self.model, self.task = model.eval(), task
        self.bags = bags  # vectors of a place: of one text, of two, or of a word (3)
        self.tokens = 0  # that the encoder has read

    def encoded(self, examples: Sequence[Example]) -> Encoded:
        """Examples in rows; texts are cut when they are read."""
        length = LONGEST
        if reads_words(self.task):
            length = self.model.longest
        return Encoded.of(self.task, examples, self.model.tokeniser, length)

    def vectors(self, encoded: Encoded) -> Outputs:
        """The vectors of all places."""
        if self.bags == OF_WORDS:
            return side_by_side([np.concatenate(self._states(encoded.units))])
        borders = [unit.second or len(unit.tokens) for unit in encoded.units]
        cut = list(zip(encoded.units, borders, strict=True))
        parts = [[unit.tokens[1:border] for unit, border in cut]]
        if self.bags == 2:
            parts.append([unit.tokens[border:] for unit, border in cut])
        return side_by_side([self._means([self._row(own) for own in part]) for part in parts])

    def _row(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """One of the texts of a unit as a row of its own."""
        cls, sep = self.model.tokeniser.cls, self.model.tokeniser.sep
        content = [token for token in tokens if token != sep][: self.model.longest - 2]
        return (cls, *content, sep)

    def _means(self, rows: Sequence[tuple[int, ...]]) -> Outputs:
        """A vector for each row; the same row is read once."""
        distinct = {row: number for number, row in enumerate(dict.fromkeys(rows))}
        states = np.concatenate(self._states([Unit(list(row), [0], None) for row in distinct]))
        return np.asarray(states[[distinct[row] for row in rows]])

    @torch.inference_mode()
    def _states(self, units: Sequence[Unit]) -> list[Outputs]:
        """The states at the places of each unit."""
        states: list[Outputs] = [np.zeros((0, 0), np.float32)] * len(units)
        for batch in rows_by_length(units):
            own = self.model([units[number] for number in batch]).cpu().numpy()
            for row, number in enumerate(batch):
                states[number] = own[row, : len(units[number].places)]
        self.tokens += sum(len(unit.tokens) for unit in units)
        return states


class Downloaded:
    """A contestant that begins with weights of others."""

    takes_folder: ClassVar[bool] = True
    uses_minutes: ClassVar[bool] = True
    is_timed: ClassVar[bool] = True

    @classmethod
    def check(cls, source: Path) -> None:
        """Raises an error where transformers is missing, or the folder has no weights."""
        require_transformers()
        if is_run(source):
            raise RunError(f"{source} is a run of tasklm. Compare it as run={source}.")
        model_folder(source)

    @classmethod
    def against(cls, task: Task) -> str:
        """Kinds whose answers are searched for."""
        return against_linear(task)


@CONTESTANTS.register("frozen")
class Frozen(Downloaded):
    """A linear layer on the vectors of a model that is not changed."""

    def learn(self, job: Job) -> Learned:
        """Reads so much of dev and train as the time allows, and fits the layer."""
        assert job.source is not None
        started = time.monotonic()
        reader = Reader(SentenceModel(job.source, job.machine.device), job.task)
        reader.bags = count_bags(job.task, reader.encoded(job.train[:LEAST]).units)
        rate = _rate(reader, job.dev)
        counts = [int(share * job.seconds * rate) for share in SHARES]
        dev = _some(reader, job.dev, max(LEAST, counts[0]))
        train = _with_all_classes(reader, job.train, max(LEAST, counts[1]))
        until = started + job.seconds
        chosen = best_head(
            job.task,
            job.metric,
            Vectors(train, reader.vectors(train)),
            Vectors(dev, reader.vectors(dev)),
            until,
        )
        chosen.head.save(job.folder)
        write_task(job.folder, chosen.task)
        own = bytes_in(job.folder) + sum(file.stat().st_size for file in files_of(job.source))
        return Learned(
            f"{chosen.setting}, {len(train.examples):,} examples",
            own,
            flops=2.0 * reader.tokens * reader.model.parameters_per_token,
            parameters=sum(one.numel() for one in reader.model.parameters()),
            outside_weights=True,
        )

    def load(self, job: Job) -> FrozenModel:
        """The encoder and the layer."""
        assert job.source is not None
        task = read_task(job.folder)
        head, model = LinearHead.load(job.folder), SentenceModel(job.source, job.machine.device)
        bags = OF_WORDS
        if not reads_words(task):
            bags = bags_in(len(head.weights) // model.width)
        return FrozenModel(task, Reader(model, task, bags), head)


@dataclass(frozen=True)
class FrozenModel:
    """An encoder and a linear layer with their task."""

    task: Task
    reader: Reader
    head: LinearHead

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        """A label for each example."""
        own = self.reader.encoded(examples)
        return own.labels(self.task, self.head.outputs(self.reader.vectors(own)))


def _rate(reader: Reader, dev: Sequence[Example]) -> float:
    """The examples that are read in a second."""
    started, some = time.monotonic(), dev[:FIRST]
    reader.vectors(reader.encoded(some))
    return len(some) / max(1e-3, time.monotonic() - started)


def _some(reader: Reader, examples: Sequence[Example], most: int) -> Encoded:
    """Evenly spread examples as the encoder reads them: at most so many, and not more than memory
    has room for.
    """
    wanted = min(most, len(examples))
    some = [examples[place * len(examples) // wanted] for place in range(wanted)]
    encoded = reader.encoded(some)
    room = MOST_BYTES // (4 * reader.model.width * max(PARTS.values()))
    chosen = evenly_within(encoded, room)
    if len(chosen) == len(some):
        return encoded
    return reader.encoded([some[place] for place in chosen])


def _with_all_classes(reader: Reader, train: Sequence[Example], most: int) -> Encoded:
    """Evenly spread examples of train; all of them where some lack a class."""
    some = _some(reader, train, most)
    task = reader.task
    if task.classifies and len({one.label for one in some.examples}) < len(task.labels):
        return _some(reader, train, len(train))
    return some
