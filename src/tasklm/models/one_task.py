"""One of the tasks of a model, as the ordinary model of that task."""

from __future__ import annotations

import dataclasses

from torch import nn

from tasklm.encoders.initial_weights import shapes_alone
from tasklm.models.answering import for_one_task
from tasklm.models.task_model import LoadedModels, TaskModel
from tasklm.tasks.base import Task
from tasklm.tasks.heads.layers import TokenHead
from tasklm.tasks.heads.turns import head_of_turn
from tasklm.tasks.members import Member
from tasklm.tasks.several import member_of, turns_of


def alone(loaded: LoadedModels, name: str) -> LoadedModels:
    """The model of one of several tasks: the same encoder, and that task's outputs.

    Raises RecipeError, with the way out, for a name that is missing, unknown, or given for a model
    of one task.
    """
    own = for_one_task(loaded, name)
    wide = own.wide is not None
    models = [_model_of(model, loaded.task, name, wide) for model in loaded.models]
    return dataclasses.replace(own, models=models)


def head_of(head: nn.Module, task: Task, name: str) -> nn.Module:
    """The head of one of several tasks.

    Of a head that tasks share it has all but the last map in common with theirs; one that takes
    turns has its own.
    """
    member = member_of(task, name)
    for number, turn in enumerate(turns_of(task)):
        if name in turn.names:
            head = head_of_turn(head, number)
    return _columns_of(head, member) if member.shares else head


def _columns_of(head: nn.Module, member: Member) -> TokenHead:
    """The part of a shared head that gives the outputs of one task."""
    assert isinstance(head, TokenHead)
    with shapes_alone():
        own = TokenHead(head.dense.in_features, member.outputs, 0.0)
    own.dense, own.norm, own.dropout = head.dense, head.norm, head.dropout
    for name, tensor in head.out.named_parameters():
        rows = tensor.detach()[member.columns].clone()
        setattr(own.out, name, nn.Parameter(rows, tensor.requires_grad))
    return own.train(head.training)


def _model_of(model: nn.Module, task: Task, name: str, wide: bool) -> nn.Module:
    assert isinstance(model, TaskModel)
    own = TaskModel(model.encoder, head_of(model.head, task, name), wide)
    if wide:
        own.wide_scale = model.wide_scale
    return own.train(model.training)
