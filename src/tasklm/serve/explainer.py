"""A finished run, ready to say why: a text in, its label and what pushed for and against it out."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.evaluate.training_data import splits_of
from tasklm.influence.explanation import ExampleSide, Explanation, PassageSide
from tasklm.recipe.schema import Hardware
from tasklm.run_folder import MODEL, SELECTED, find_run, is_run, recipe_of
from tasklm.serve.inputs import example_of
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example


def run_of(where: Path) -> Path:
    """The run folder that is meant by itself or by the folder `model` in it; a model alone has no
    training data.
    """
    if where.is_file():
        raise RunError(
            f"{where} is a file. Give the folder of a "
            f"finished run, such as runs/first; tasklm fit makes one."
        )
    if not where.is_dir():
        raise RunError(
            f"there is no folder {where}. Give the folder of a "
            f"finished run, such as runs/first; tasklm fit makes one."
        )
    run = find_run(where)
    if run is not None and (run / MODEL / "config.json").exists():
        return run
    if is_run(where):
        raise RunError(f"{where} has no trained model yet. Finish the run: tasklm evaluate {where}")
    if (where / "config.json").exists():
        problem = f"{where} is a model by itself: what it was trained on stands in its run folder"
        raise RunError(
            f"{problem}. Give the folder of the run, "
            f"such as runs/first, with recipe.toml and model/ in it."
        )
    raise RunError(
        f"{where} is not a run folder (no recipe.toml). "
        f"Give the folder of a finished run, such as runs/first."
    )


def model_of(run: Path) -> Predictor:
    """The model of a run, on as many threads as its recipe asks for."""
    return Predictor(
        run / MODEL,
        Hardware(precision="fp32", threads=recipe_of(run).hardware.threads),
    )


def training_examples(run: Path, task: Task) -> list[Example]:
    """The examples that a run was trained on, read again from its files; `task` is that of its
    model.
    """
    return splits_of(run, task, f"train again: tasklm report {run}").train


class TooSlow(Exception):
    """An explanation that was not done when it had to be."""


class Explainer:
    """Holds the model of a run, its training examples and, where it was trained on selected text,
    the model of stage 1.
    """

    _deadline = math.inf

    def __init__(self, where: Path) -> None:
        self.run = run_of(where)
        recipe = recipe_of(self.run)
        self.data = recipe.data
        model = model_of(self.run)
        train = training_examples(self.run, model.task)
        self.examples = ExampleSide(model.loaded, model.machine, train)
        trained_on_text = recipe.uses_corpus and (self.run / SELECTED).exists()
        self.passages = (
            PassageSide(self.run, model.task, model.machine.device) if trained_on_text else None
        )
        encoders = [self.examples.gradients.model.encoder]
        if self.passages is not None:
            encoders.append(self.passages.gradients.encoder)
        for encoder in encoders:  # each of the many batches of an explanation passes through one
            encoder.register_forward_pre_hook(self._check_the_clock)

    def explain(self, given: str, top: int = 5) -> Explanation:
        """The prediction for a text, or a JSON object with the columns of train, with at most `top`
        texts on each side.
        """
        return self.explain_example(example_of(given, self.examples.task, self.data), top)

    def explain_example(
        self, example: Example, top: int = 5, deadline: float = math.inf
    ) -> Explanation:
        """The prediction for an example, as `explain`; raises TooSlow after `deadline` of the
        monotonic clock.
        """
        self._deadline = deadline
        text = example.text
        asked, (answer,) = self.examples.predicted([example])
        (examples,) = self.examples.attributions([text], asked, top)
        passages = None if self.passages is None else self.passages.attributions(text, asked, top)
        task = self.examples.task
        label = " ".join(task.classes(task.label_of(answer))) or json.dumps(
            answer, ensure_ascii=False
        )
        return Explanation(
            text,
            label,
            answer.get("probabilities", {}).get(answer.get("label")),
            examples,
            passages,
        )

    def _check_the_clock(self, *_: Any) -> None:
        if time.monotonic() > self._deadline:
            raise TooSlow
