"""The score of labels that a program gives, beside what a model answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from tasklm.errors import DataError
from tasklm.tasks.base import Task, score


def require_as_many(inputs: Sequence[Any], labels: Sequence[Any] | NDArray[Any]) -> None:
    """Raises DataError unless there is a label for each input."""
    if len(inputs) != len(labels):
        raise DataError(
            f"there are {len(inputs)} inputs but {len(labels)} labels",
            remedy="Give one label per input.",
        )


def score_of_labels(
    task: Task, metric: str | None, labels: Sequence[Any] | NDArray[Any], predict: Callable[[], Any]
) -> float:
    """The score of what `predict` gives, of a kind without classes."""
    try:
        return score(task.metric(metric or task.metrics[0]), list(labels), list(predict()))
    except ValueError as error:  # such as tags for more words than the sentence has
        raise DataError(
            f"the labels do not fit the inputs: {error}",
            remedy="Give them in the form that predict returns.",
        ) from None


def score_of_classes(
    task: Task,
    metric: str | None,
    labels: Sequence[Any] | NDArray[Any],
    classes: Sequence[Any],
    predict: Callable[[], NDArray[Any]],
) -> float:
    """The score of the likeliest of these classes, whose probabilities `predict` gives."""
    number = {label: place for place, label in enumerate(classes)}
    strange = [label for label in labels if label not in number]
    if strange:
        raise DataError(
            f"the label {strange[0]!r} does not occur in train", remedy="Leave such rows out."
        )
    return score(
        task.metric(metric or "accuracy"),
        [task.labels[number[label]] for label in labels],
        [task.labels[place] for place in predict().argmax(axis=1)],
    )
