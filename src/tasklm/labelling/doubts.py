"""How unsure a model is of texts: the difference between its two likeliest answers.

Where a run has several seeds, all of them answer, and their probabilities are averaged: texts on
which they disagree are uncertain too, even if each seed is sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.rivals import Rivals


@dataclass(frozen=True)
class Doubt:
    """How unsure a model is of a text, from 0 to 1; and whether its seeds disagree."""

    rivals: Rivals
    disagree: bool = False

    @property
    def amount(self) -> float:
        """1 less the difference of the two probabilities."""
        (_, first), (_, second) = self.rivals
        return 1.0 - (first - second)


def doubts(committee: Sequence[Predictor], examples: Sequence[Example]) -> list[Doubt]:
    """The doubt of a model, or of several seeds together, about each example."""
    task = committee[0].task
    answers = [predictor.answers(examples) for predictor in committee]
    return [_doubt(task, own) for own in zip(*answers, strict=True)]


def _doubt(task: Task, answers: Sequence[Answer]) -> Doubt:
    labels = [task.label_of(answer) for answer in answers]
    disagree = any(label != labels[0] for label in labels)
    return Doubt(task.rivals(_averaged(answers)), disagree)


def _averaged(answers: Sequence[Answer]) -> Answer:
    """The first answer with the mean probabilities of all."""
    if len(answers) == 1:
        return answers[0]
    several = [answer["probabilities"] for answer in answers]
    return {**answers[0], "probabilities": _mean(several)}


def _mean(several: Sequence[Any]) -> Any:
    """The means of some lists of probabilities, or of mappings with the same names."""
    if isinstance(several[0], dict):
        return {name: float(np.mean([one[name] for one in several])) for name in several[0]}
    return [float(value) for value in np.mean(several, axis=0)]
