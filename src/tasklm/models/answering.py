"""What models that answer have in common, be it networks, an ONNX file or a linear model of words.

Nothing here needs PyTorch, whose import takes longer than the answers of the last two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RunError
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide_parts import AnyWide, WideParts
from tasklm.tasks.examples import Example
from tasklm.tasks.several import member_of, turn_of
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.rows import Rows
from tasklm.tokens.tokenizer import Vocabulary

ROWS = 64  # per batch


@dataclass(frozen=True)
class Loaded:
    """What was read of a model besides what computes its outputs."""

    task: Task
    vocabulary: Vocabulary
    config: dict[str, Any]
    wide: AnyWide | None

    @property
    def length(self) -> int:
        """Tokens of a row, at most."""
        return int(self.config["length"])

    def encoded(self, examples: Sequence[Example]) -> EncodedExamples:
        """Examples as the model reads them."""
        return encoded_with(self.wide, self.task, examples, self.vocabulary, self.length)


AnyLoaded = TypeVar("AnyLoaded", bound=Loaded)


class Answering(Protocol):
    """A model that is ready to answer: networks, an ONNX file or a linear model of words."""

    @property
    def loaded(self) -> Loaded:
        """Its task, and how it reads examples."""
        ...

    @property
    def device(self) -> str:
        """The type of device that computes, such as cpu."""
        ...

    def predictions(self, examples: EncodedExamples) -> list[Any]:
        """What the task keeps of the outputs of each unit; raises RunError where they are not
        finite.
        """
        ...

    def predictions_of_all(self, examples: EncodedExamples, inputs: Sequence[int]) -> list[Any]:
        """The same where several tasks are asked about the same inputs, which have these numbers:
        one for each example. What the tasks have in common is computed once.
        """
        ...

    def with_task(self, task: Task) -> Answering:
        """The same model with a task that differs in how answers are searched for."""
        ...

    def alone(self, name: str) -> Answering:
        """One of several tasks by itself.

        Raises RecipeError, with the way out, for a name that is missing, unknown, or given for a
        model of one task.
        """
        ...


def encoded_with(
    wide: AnyWide | None,
    task: Task,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    length: int,
) -> EncodedExamples:
    """Examples as their task encodes them, with the outputs of a model's wide part, if any."""
    outputs = None if wide is None else wide.outputs(examples)
    return EncodedExamples.of(task, examples, vocabulary, length, outputs)


def kept_by(
    compute: Callable[[Rows], NDArray[Any]],
    task: Task,
    examples: EncodedExamples,
    finite: bool = True,
    keep: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """What the task keeps of the outputs (rows, places, …) of each unit, computed by rows.

    `finite`: outputs that are NaN or infinite raise RunError. `keep`: what to keep of a unit's
    outputs, instead of the task's choice.
    """
    predictions: list[Any] = [None] * len(examples.units)
    for groups in examples.blocks(ROWS):
        rows = examples.rows(groups)
        outputs, own_task = compute(rows), turn_of(task, rows.turn)
        for row, number in enumerate(examples.numbers_of(groups)):
            own = outputs[row, : len(examples.units[number].places)]
            if finite:
                require_finite(own)
            predictions[number] = (keep or own_task.keep)(own)
    return predictions


def require_finite(outputs: NDArray[Any]) -> None:
    """Raises RunError if outputs are NaN or infinite."""
    if not np.isfinite(outputs).all():
        raise RunError("the model's outputs are not finite, so it has no answer. Train it again.")


def require_width(wide: AnyWide | None, task: Task) -> None:
    """Raises ValueError if a wide part's outputs do not match those of the task's head."""
    if wide is not None and wide.width != (task.wide_width or None):
        raise ValueError(f"the wide part has {wide.width} outputs, which does not match the head")


def for_one_task(loaded: AnyLoaded, name: str) -> AnyLoaded:
    """What was read, as that of one of several tasks; what computes is left as it is."""
    member = member_of(loaded.task, name)
    wide = None
    if isinstance(loaded.wide, WideParts):
        wide = loaded.wide.parts.get(name)  # none of a task that takes turns
    about = {**loaded.config.get("about", {}), "metric": member.metric}
    config = {**loaded.config, "task": member.task.to_dict(), "about": about}
    return dataclasses.replace(loaded, task=member.task, config=config, wide=wide)
