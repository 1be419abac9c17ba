"""Networks on the machine that computes their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tasklm.device.machine import Machine, set_up
from tasklm.models.all_tasks import predictions_of_shared_rows
from tasklm.models.one_task import alone
from tasklm.models.saved_model import SavedModel
from tasklm.models.task_model import LoadedModels, TaskModel, kept_of, models_of
from tasklm.recipe.schema import Hardware
from tasklm.tasks.base import Task
from tasklm.tasks.heads.turns import head_of_turn
from tasklm.tasks.several import turns_of
from tasklm.tokens.examples import EncodedExamples, EncodedTurns


@dataclass(frozen=True)
class Networks:
    """One network or several, whose outputs are averaged, and where they run."""

    loaded: LoadedModels
    machine: Machine

    @property
    def device(self) -> str:
        """The type of device that computes."""
        return self.machine.device.type

    def predictions(self, examples: EncodedExamples) -> list[Any]:
        """What the task keeps of the outputs of each unit."""
        models, task = self.loaded.models, self.loaded.task
        return kept_of(models, task, examples, self.machine, finite=True)

    def predictions_of_all(self, examples: EncodedExamples, inputs: Sequence[int]) -> list[Any]:
        """The same of several tasks: those that share a head share rows too."""
        turns = turns_of(self.loaded.task)
        if not turns:
            return predictions_of_shared_rows(self, examples, inputs)
        assert isinstance(examples, EncodedTurns)
        predictions: list[Any] = []
        for number, (turn, part) in enumerate(zip(turns, examples.parts, strict=True)):
            models = [turn_model(model, number) for model in self.loaded.models]
            own = replace(self, loaded=replace(self.loaded, models=models, task=turn.task))
            if turn.mixed:
                predictions += predictions_of_shared_rows(own, part, inputs)
            else:
                predictions += own.predictions(part)
        return predictions

    def with_task(self, task: Task) -> Networks:
        """The same with a task that differs in how answers are searched for."""
        return replace(self, loaded=replace(self.loaded, task=task))

    def alone(self, name: str) -> Networks:
        """One of several tasks by itself, with the same encoder."""
        return replace(self, loaded=alone(self.loaded, name))


def turn_model(model: nn.Module, turn: int) -> nn.Module:
    """The model of one of the turns that tasks take; the first has the wide part."""
    assert isinstance(model, TaskModel)
    own = TaskModel(model.encoder, head_of_turn(model.head, turn))
    if not turn:
        own.wide_scale = model.wide_scale
    return own.train(model.training)


def open_networks(saved: SavedModel, hardware: Hardware) -> Networks:
    """The networks of a folder, ready to answer."""
    machine = set_up(hardware)
    return Networks(models_of(saved, machine.device), machine)
