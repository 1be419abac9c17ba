"""Explains predictions of a finished run by its training examples and selected passages."""

from __future__ import annotations

import json
import math
import time
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.influence.evidence import Explanation
from tasklm.influence.explanation import ExampleSide, PassageSide
from tasklm.run_folder import SELECTED, recipe_of
from tasklm.serve.finished_run import model_of, run_of, training_examples
from tasklm.serve.inputs import example_of
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of
from tasklm.tasks.writing import writes


def explainer_of(where: Path, name: str = "") -> Explainer:
    """The explainer of a run, or of the named one of its several tasks."""
    explainer = Explainer(where)
    if name or members_of(explainer.examples.task):
        return explainer.of(name)
    return explainer


class TooSlow(Exception):
    """An explanation that took longer than its deadline."""


@dataclass
class Clock:
    """When an explanation must be ready, by the monotonic clock."""

    deadline: float = math.inf


class Explainer:
    """The model of a run with its training examples and, if there is one, the model of stage 1.

    A model of several tasks is asked by the explainer `of` one of them.
    """

    def __init__(self, where: Path) -> None:
        self.run = run_of(where)
        recipe = recipe_of(self.run)
        model = model_of(self.run)
        networks = model.networks
        self.data, self._columns, self._clock = model.data, model.columns, Clock()
        train = training_examples(self.run, model.task)
        self.examples = ExampleSide(networks.loaded, networks.machine, train)
        self.passages: PassageSide | None = None
        encoders = [self.examples.gradients.model.encoder]
        read_text = recipe.uses_corpus and (self.run / SELECTED).exists()
        if read_text and not writes(model.task):  # stage 1 has no decoder to compare them by
            self.passages = PassageSide(self.run, model.task, networks.machine.device)
            encoders.append(self.passages.gradients.encoder)
        for encoder in encoders:  # every batch of an explanation passes through one
            encoder.register_forward_pre_hook(self._check_the_clock)

    def of(self, name: str) -> Explainer:
        """The explainer of one of several tasks, with its own examples and the same encoder.

        Raises RecipeError for a name that no task has, or if the model has one task.
        """
        own = copy(self)
        own.examples = self.examples.of(name)
        if self.passages is not None:
            own.passages = self.passages.of(name)
        own.data = self._columns.get(name, self.data)
        return own

    def explain(self, given: str, top: int = 5) -> Explanation:
        """Explains the prediction for a text, or a JSON object with the columns of train.

        At most `top` texts are listed on each side.
        """
        return self.explain_example(example_of(given, self.examples.task, self.data), top)

    def explain_example(
        self, example: Example, top: int = 5, deadline: float = math.inf
    ) -> Explanation:
        """Like `explain`, for an example; raises TooSlow after `deadline` of the
        monotonic clock.
        """
        self._clock.deadline = deadline
        text = example.text
        predicted, (answer,) = self.examples.predicted([example])
        (examples,) = self.examples.attributions([text], predicted, top)
        passages = None
        if self.passages is not None:
            passages = self.passages.attributions(text, predicted, top)
        task = self.examples.task
        label = " ".join(task.classes(task.label_of(answer)))
        label = label or answer.get("target") or json.dumps(answer, ensure_ascii=False)
        probability = answer.get("probabilities", {}).get(answer.get("label"))
        return Explanation(text, label, probability, examples, passages)

    def _check_the_clock(self, *_: Any) -> None:
        if time.monotonic() > self._clock.deadline:
            raise TooSlow
