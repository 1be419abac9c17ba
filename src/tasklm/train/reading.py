"""What stage 1 has read: how many tokens of each selected passage, and how often each example.

Streams are a function of the seed, so these numbers follow from where the last step left them: they
are those of the steps that led to the weights, whatever was interrupted and repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.recipe.model_sections import Train
from tasklm.storage.checksums import load_array
from tasklm.train.context import TrainingContext
from tasklm.train.init.counts import sampled_passages
from tasklm.train.init.first_weights import beginning_of
from tasklm.train.stage1 import JointStage

TEXT, COUNTED, EXAMPLES = "text-read.npy", "text-counted.npy", "examples-read.npy"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """What a training of stage 1 has read."""

    text: Ints  # tokens of each selected passage
    counted: Ints  # … that the first weights come from
    examples: Ints  # times of each group of the task's units


def save_reading(
    folder: Path, stage: JointStage, context: TrainingContext, settings: Train
) -> None:
    """Writes what a stage has read, once its last step is done."""
    passages = 0 if context.external is None else len(context.external)
    read = stage.tokens_read()
    np.save(folder / TEXT, np.zeros(passages, np.int64) if read is None else read)
    np.save(folder / COUNTED, _counted(context, settings, passages))
    np.save(folder / EXAMPLES, stage.internal.times_read())


def _counted(context: TrainingContext, settings: Train, passages: int) -> Ints:
    """The tokens of each passage in the counts that embeddings start from."""
    counted = np.zeros(passages, np.int64)
    counts = beginning_of(settings, context.encoder, context.shape).counts
    if counts and context.external is not None:
        sample = sampled_passages(context.external, left_out=context.held_out)
        counted[sample] = context.external.lengths[sample]
    return counted


def read_reading(folder: Path) -> Reading:
    """What a finished training of stage 1 has read."""
    return Reading(*(load_array(folder / name, np.int64) for name in (TEXT, COUNTED, EXAMPLES)))
