"""One of the tasks of a model, as the ordinary model of that task."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from tasklm.encoders.initial_weights import shapes_alone
from tasklm.models.task_model import LoadedModels, TaskModel
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.heads.layers import TokenHead
from tasklm.tasks.several import Member, member_of


def alone(loaded: LoadedModels, name: str) -> LoadedModels:
    """The model of one of several tasks: the same encoder, and that task's outputs.

    Raises RecipeError, with the way out, for a name that is missing, unknown, or given for a model
    of one task.
    """
    member = member_of(loaded.task, name)
    wide = None
    if isinstance(loaded.wide, WideParts):
        wide = loaded.wide.parts[name]
    about = {**loaded.config.get("about", {}), "metric": member.metric}
    return dataclasses.replace(
        loaded,
        models=[_model_of(model, member, wide is not None) for model in loaded.models],
        task=member.task,
        config={**loaded.config, "task": member.task.to_dict(), "about": about},
        wide=wide,
    )


def head_of(head: nn.Module, member: Member) -> TokenHead:
    """The head of one of several tasks, which shares all but the last map with the others."""
    assert isinstance(head, TokenHead)
    with shapes_alone():
        own = TokenHead(head.dense.in_features, member.outputs, 0.0)
    own.dense, own.norm, own.dropout = head.dense, head.norm, head.dropout
    for name, tensor in head.out.named_parameters():
        rows = tensor.detach()[member.columns].clone()
        setattr(own.out, name, nn.Parameter(rows, tensor.requires_grad))
    return own.train(head.training)


def _model_of(model: Any, member: Member, wide: bool) -> nn.Module:
    if not isinstance(model, TaskModel):  # an ONNX file
        part: nn.Module = model.alone(member.name, wide)
        return part
    own = TaskModel(model.encoder, head_of(model.head, member), wide)
    if wide:
        own.wide_scale = model.wide_scale
    return own.train(model.training)
