"""The inputs of both stages of a training."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import cost_of
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.examples import Example
from tasklm.tasks.writing import writes
from tasklm.tokens.both_texts import both_texts
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.init.counts import sampled
from tasklm.train.init.first_weights import Counted, count
from tasklm.train.stage2 import TaskLosses


@dataclass
class TrainingContext:
    """The inputs of both stages."""

    encoder: str
    shape: Shape
    task: Task
    vocabulary: Vocabulary
    train: EncodedExamples
    dev: EncodedExamples
    external: Shards | None  # None: task data only
    length: int
    machine: Machine
    wide: AnyWide | None = None  # of stage 2
    labels_weight: float | None = None  # beside teachers, of which `train` then has the outputs
    task_power: float = 1.0  # of several tasks, see several.power
    # of stage 2, where teachers label selected text too; None: the training examples
    lessons: EncodedExamples | None = None
    lessons_key: str = ""
    raw: EncodedExamples | None = None  # text without labels, of stage 2
    raw_key: str = ""
    held_out: np.ndarray | Sequence[int] = ()  # passages of `external` that stage 1 never reads
    external_length: int | None = None  # of rows of `external`; None: as of all others
    # what the last seed of stage 2 compiled, for the next
    losses: TaskLosses | None = field(default=None, init=False)

    @property
    def external_rows(self) -> int:
        """Tokens of a row of selected text."""
        return self.external_length or self.length

    @property
    def stage2_examples(self) -> EncodedExamples:
        """The examples that stage 2 learns from."""
        return self.lessons or self.train

    @functools.cached_property
    def stage1_examples(self) -> EncodedExamples:
        """The examples that stage 1 reads: where answers are written, both texts of each, for the
        language model alone.
        """
        return both_texts(self.train) if writes(self.task) else self.train

    @property
    def parameters(self) -> int:
        """The weights of an encoder, and of the decoder where there is one; heads are small."""
        count = cost_of(self.encoder, self.shape).parameters
        if not writes(self.task):
            return count
        with shapes_alone():
            decoder = self.task.head(self.shape.width, 0.0)
        return count + sum(weights.numel() for weights in decoder.parameters())

    @property
    def taught(self) -> bool:
        """Whether teachers teach stage 2."""
        return any(unit.taught is not None for unit in self.train.units[:1])

    def encoded(self, examples: Sequence[Example]) -> EncodedExamples:
        """Examples as stage 2 reads them."""
        return encoded_with(self.wide, self.task, examples, self.vocabulary, self.length)

    @functools.cached_property
    def counted(self) -> Counted:
        """The statistics of the text's tokens; counted once."""
        text = self.external
        if text is not None:
            text = sampled(text, left_out=self.held_out)
        return count(self.stage1_examples, text, self.vocabulary.specials, self.shape)
