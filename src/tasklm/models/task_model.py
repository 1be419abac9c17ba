"""The trained model: encoder, head, vocabulary and labels, as a folder of safetensors and JSON.

A folder holds one model, or several of the same shape whose outputs are averaged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.recurrent import cost_class
from tasklm.device.machine import Machine
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.weight_files import finite_weights, misfits
from tasklm.encoders.checkpoints.weight_shapes import shapes_in
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import RunError
from tasklm.models.answering import Loaded, kept_by, require_width
from tasklm.models.saved_model import FORMAT, SavedModel, read_saved_model, weight_files
from tasklm.models.weights import save_weights
from tasklm.storage.checksums import files_in, seal
from tasklm.storage.files import ARTEFACT, PARTIAL
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.baselines.wide import FOLDER as WIDE
from tasklm.tasks.baselines.wide_parts import AnyWide, load_wide
from tasklm.tasks.heads.decoders import DecoderHead, taught_logits, write
from tasklm.tasks.heads.layers import OutHead
from tasklm.tasks.heads.turns import head_of_turn, head_with_wide
from tasklm.tasks.several import require_columns
from tasklm.tasks.writing import search_of, writes
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.rows import Rows
from tasklm.tokens.tokenizer import Vocabulary

NORM = re.compile(r"head\.(heads\.\d+\.)?norm\.weight")


def cost_of(encoder: str, shape: Shape) -> EncoderCost:
    """The cost of an encoder of this architecture and shape."""
    return cost_class(encoder)(
        layers=shape.layers,
        width=shape.width,
        feedforward=shape.feedforward,
        vocabulary=shape.vocabulary,
        positions=shape.positions,
        kind=encoder,
        embedding=shape.embedding,
        heads=shape.heads,
    )


class TaskModel(nn.Module):
    """An encoder with a task's head; `wide` adds the outputs of a wide part at a learnt scale."""

    def __init__(self, encoder: nn.Module, head: nn.Module, wide: bool = False) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.wide_scale = nn.Parameter(torch.ones(())) if wide else None

    def forward(self, batch: TokenBatch) -> Tensor:
        """The outputs of head and wide part."""
        return self.with_wide(task_outputs(self.encoder, self.head, batch), batch)

    def without_encoder(self, batch: TokenBatch) -> Tensor:
        """The outputs of a model whose head is silent: the same without a pass of the encoder."""
        assert isinstance(self.head, OutHead) and batch.places is not None
        out = self.head.out
        states = out.weight.new_zeros((*batch.places.shape, out.in_features))
        return self.with_wide(self.head(states), batch)

    def with_wide(self, outputs: Tensor, batch: TokenBatch) -> Tensor:
        """The outputs of a head with what the wide part adds to them.

        Of tasks that take turns, only those of the first turn, who share a head, have one.
        """
        if self.wide_scale is None or batch.turn:
            return outputs
        assert batch.wide is not None
        return outputs + self.wide_scale * batch.wide

    def shared(self, shares: Sequence[float]) -> dict[str, Tensor]:
        """The weights with outputs of the head that has a wide part scaled to shares: each of them,
        or all alike.
        """
        weights = dict(self.state_dict())
        if any(share != 1.0 for share in shares):
            own = head_with_wide(self.head)
            assert isinstance(own, OutHead)
            path = next(name for name, part in self.named_modules() if part is own.out)
            for name, tensor in own.out.state_dict().items():
                by = torch.tensor(shares, dtype=tensor.dtype, device=tensor.device)
                weights[f"{path}.{name}"] = by.view(-1, *[1] * (tensor.dim() - 1)) * tensor
        return weights


def task_outputs(encoder: nn.Module, head: nn.Module, batch: TokenBatch) -> Tensor:
    """A head's outputs (rows, places, …) on a batch; a decoder's are logits of its targets."""
    if isinstance(head, DecoderHead):
        return taught_logits(encoder, head, batch)
    return head_outputs(head, encoder(batch, batch.flat_places()), batch)  # what the head reads


def head_outputs(head: nn.Module, states: Tensor, batch: TokenBatch) -> Tensor:
    """A head's outputs (rows, places, …) from the states (rows · places, width) at its places."""
    assert batch.places is not None
    rows, places = batch.places.shape
    outputs: Tensor = head_of_turn(head, batch.turn)(states.view(rows, places, -1))
    return outputs


def new_encoder(name: str, shape: Shape, vocabulary: Vocabulary | None = None) -> Any:
    """A randomly initialised encoder, with its vocabulary unless only its shapes are asked."""
    encoder = ENCODERS.get(name)(shape)
    if vocabulary is not None and hasattr(encoder, "spell"):
        encoder.spell(vocabulary)
    return encoder


def kept_of(
    models: Sequence[nn.Module],
    task: Task,
    examples: EncodedExamples,
    machine: Machine,
    finite: bool = False,
    keep: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """What the task keeps of the outputs of each unit; outputs of several models are averaged.

    `finite`: outputs that are NaN or infinite raise RunError; a training would continue with the
    next epoch. `keep`: what to keep of a unit's outputs, instead of the task's choice.
    """
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    answering = answering_pass(models, task, examples.vocabulary)

    def compute(rows: Rows) -> NDArray[Any]:
        outputs: NDArray[Any] = answering(TokenBatch.of(rows).to(machine.device)).cpu().numpy()
        return outputs

    with torch.inference_mode(), machine.arithmetic():
        predictions = kept_by(compute, task, examples, finite, keep)
    for model, was_training in zip(models, were_training, strict=True):
        model.train(was_training)
    return predictions


def answering_pass(
    models: Sequence[nn.Module], task: Task, vocabulary: Vocabulary
) -> Callable[[TokenBatch], Tensor]:
    """What computes the outputs by which models answer: their mean, or what they write together."""
    if writes(task):
        return functools.partial(write, models, search_of(task), vocabulary)
    passes = [_pass_of(model) for model in models]
    return lambda batch: torch.stack([one(batch).float() for one in passes]).mean(0)


def _pass_of(model: nn.Module) -> Callable[[TokenBatch], Tensor]:
    """What computes a model's outputs; a network that nothing is read of is not run."""
    if isinstance(model, TaskModel) and isinstance(model.head, OutHead) and model.head.silent:
        return model.without_encoder
    return model


def answers_of(
    models: Sequence[nn.Module], task: Task, examples: EncodedExamples, machine: Machine
) -> list[Answer]:
    """The answers of a model or an ensemble for all examples, in order."""
    predictions = kept_of(models, task, examples, machine, finite=True)
    return task.answers(examples.examples, examples.units, predictions)


@dataclass(frozen=True)
class ModelDescription:
    """The description of a model: the encoder and its shape, the task, and the tokenizer."""

    encoder: str
    shape: Shape
    task: Task
    vocabulary: Vocabulary
    length: int


def save_models(
    folder: Path,
    description: ModelDescription,
    models: Sequence[nn.Module],
    about: dict[str, Any],
    wide: AnyWide | None = None,
) -> None:
    """Writes one model or an ensemble, with everything needed to predict."""
    folder.mkdir(parents=True, exist_ok=True)
    if wide is not None:
        wide.save(folder / WIDE)
    for path, model in zip(weight_files(folder, len(models)), models, strict=True):
        save_weights(path, model.state_dict())
    description.vocabulary.save(folder / "tokenizer.json")
    config: dict[str, Any] = {"format": FORMAT}
    if len(models) > 1:
        config["models"] = len(models)
    config |= {
        "encoder": description.encoder,
        "shape": description.shape.to_dict(),
        "task": description.task.to_dict(),
        "length": description.length,
        "about": about,
    }
    seal(
        folder / "config.json",
        config,
        files_in(folder, leave_out=("config.json", ARTEFACT, PARTIAL)),
    )


@dataclass(frozen=True)
class LoadedModels(Loaded):
    """The network of a folder, or the several whose outputs are averaged, ready to predict."""

    models: Sequence[nn.Module]

    @property
    def model(self) -> TaskModel:
        """The single model that was trained here."""
        (model,) = self.models
        assert isinstance(model, TaskModel)
        return model


def load_models(folder: Path, device: torch.device) -> LoadedModels:
    """The model of a folder, or the several whose outputs are to be averaged, ready to predict."""
    return models_of(read_saved_model(folder), device)


def models_of(saved: SavedModel, device: torch.device) -> LoadedModels:
    """The models that are described, with the weights beside the description."""
    with saved.damage_is_clear():
        task, wide = saved.task(), load_wide(saved.folder)
        models = [
            _load(saved, task, path, wide is not None).to(device).eval() for path in saved.weights
        ]
        require_width(wide, task)
        require_columns(wide, task)
    return LoadedModels(task, saved.vocabulary, saved.config, wide, models)


def _load(saved: SavedModel, task: Task, path: Path, wide: bool) -> TaskModel:
    """A model with the weights of a file; raises ValueError if they do not match."""
    shapes = shapes_in(path)
    # folders of `modern` from before its heads had a norm stay readable
    normed = any(NORM.fullmatch(name) for name in shapes)

    def new() -> TaskModel:
        encoder = new_encoder(saved.encoder, saved.shape, saved.vocabulary)
        return TaskModel(encoder, task.head(saved.shape.width, 0.0, normed), wide)

    with shapes_alone():
        if problems := misfits(new(), "", shapes):
            raise ValueError(f"{path.name}: {problems[0]}")
    model = new()
    model.load_state_dict(finite_weights(path))
    return model


def load_model(folder: Path, device: torch.device) -> LoadedModels:
    """The one model of a folder, ready to predict; an ensemble is refused."""
    loaded = load_models(folder, device)
    if len(loaded.models) > 1:
        problem = f"{folder} is an ensemble of {len(loaded.models)} models; this needs a single one"
        raise RunError(f"{problem}. Give the folder 'model' of the run.")
    return loaded
