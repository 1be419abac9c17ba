"""The trained model: encoder, head, vocabulary and labels; saved as a folder of safetensors and JSON.

A folder holds one model, or several of the same shape whose outputs are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tasklm.costs import EncoderCost
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.errors import DataError, RunError
from tasklm.manifests import files_in, require_whole, seal
from tasklm.runs import ARTEFACT, PARTIAL, damaged, read_json
from tasklm.tasks.base import TASKS, Answer, Task
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.checkpoints import load_weights, save_weights
from tasklm.train.hardware import Machine

FORMAT = 3


def cost_of(encoder: str, shape: Shape) -> EncoderCost:
    """Returns the cost of an encoder of this architecture and shape."""
    return EncoderCost(
        shape.layers, shape.width, shape.feedforward, shape.vocabulary, shape.positions, encoder, shape.embedding, shape.heads
    )


class TaskModel(nn.Module):
    """An encoder with a task's head."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, batch: TokenBatch) -> Tensor:
        """Returns the head's outputs."""
        return task_outputs(self.encoder, self.head, batch)


def task_outputs(encoder: nn.Module, head: nn.Module, batch: TokenBatch) -> Tensor:
    """Returns a head's outputs (rows, places, …) on a batch; the encoder's last layer computes what the head reads."""
    assert batch.places is not None
    states: Tensor = encoder(batch, batch.flat_places())
    outputs: Tensor = head(states.view(*batch.places.shape, -1))
    return outputs


def new_encoder(name: str, shape: Shape) -> Any:
    """Returns a freshly drawn encoder of the named architecture."""
    return ENCODERS.get(name)(shape)


def kept_of(models: Sequence[nn.Module], task: Task, examples: EncodedExamples, machine: Machine, batch: int = 64) -> list[Any]:
    """Returns what the task keeps of the outputs of each unit, in their order; outputs of several models are averaged."""
    kept: list[Any] = [None] * len(examples.units)
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    with torch.inference_mode(), machine.arithmetic():
        for groups, rows in examples.in_order(max(1, batch // examples.together)):
            there = rows.to(machine.device)
            outputs = torch.stack([model(there).float() for model in models]).mean(0).cpu().numpy()
            for row, number in enumerate(examples.numbers_of(groups)):
                kept[number] = task.keep(outputs[row, : len(examples.units[number].places)])
    for model, was_training in zip(models, were_training, strict=True):
        model.train(was_training)
    return kept


def answers_of(models: Sequence[nn.Module], task: Task, examples: EncodedExamples, machine: Machine) -> list[Answer]:
    """Returns the answers of a model, or of several together, for all examples in their order."""
    return task.answers(examples.examples, examples.units, kept_of(models, task, examples, machine))


def save_models(
    folder: Path,
    encoder: str,
    shape: Shape,
    models: Sequence[nn.Module],
    task: Task,
    vocabulary: Vocabulary,
    length: int,
    about: dict[str, Any],
) -> None:
    """Writes the weights of one model, or of several that answer together, and all that is needed to predict; nothing is pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, model in zip(_weight_files(folder, len(models)), models, strict=True):
        save_weights(path, model.state_dict())
    vocabulary.save(folder / "tokenizer.json")
    several = {"models": len(models)} if len(models) > 1 else {}
    config = {"format": FORMAT, **several, "encoder": encoder, "shape": shape.to_dict(), "task": task.to_dict(), "length": length}
    files = files_in(folder, leave_out=("config.json", ARTEFACT, PARTIAL))
    seal(folder / "config.json", {**config, "about": about}, files)


@dataclass(frozen=True)
class SavedModel:
    """What stands in the folder of a trained model beside its weights."""

    folder: Path
    encoder: str
    shape: Shape
    kind: str  # of its task
    vocabulary: Vocabulary
    weights: tuple[Path, ...]  # one file per model
    config: dict[str, Any]

    @contextmanager
    def damage_is_clear(self) -> Iterator[None]:
        """Turns the errors of weights that cannot be read, or do not fit the description, into a message with the way out."""
        with _damage_is_clear(self.folder):
            yield


def read_saved_model(folder: Path) -> SavedModel:
    """Returns what describes the model of a folder; the weights are not yet read."""
    path = folder / "config.json"
    if not path.exists():
        raise RunError(f"{folder} holds no model (there is no config.json). Give the folder 'model' of a finished run.")
    config = read_json(path)
    found = config.get("format") if isinstance(config, dict) else None
    if found != FORMAT:
        raise RunError(f"{path} has format {found!r}, this version reads {FORMAT}. Train the model again.")
    require_whole(folder, "config.json")
    with _damage_is_clear(folder):
        shape, vocabulary = Shape(**config["shape"]), Vocabulary.load(folder / "tokenizer.json")
        files = _weight_files(folder, int(config.get("models", 1)))
        return SavedModel(folder, str(config["encoder"]), shape, str(config["task"]["kind"]), vocabulary, files, config)


def load_models(folder: Path, device: torch.device) -> tuple[list[TaskModel], Task, Vocabulary, dict[str, Any]]:
    """Returns the model of a folder, or the several whose outputs are to be averaged, ready to predict."""
    saved, models = read_saved_model(folder), []
    with saved.damage_is_clear():
        task = TASKS.get(saved.kind).from_dict(saved.config["task"])
        for path in saved.weights:
            weights = load_weights(path)
            normed = "head.norm.weight" in weights  # folders of `modern` from before its heads had a norm stay readable
            model = TaskModel(new_encoder(saved.encoder, saved.shape), task.head(saved.shape.width, 0.0, normed))
            model.load_state_dict(weights)
            models.append(model.to(device).eval())
    return models, task, saved.vocabulary, saved.config


def load_model(folder: Path, device: torch.device) -> tuple[TaskModel, Task, Vocabulary, dict[str, Any]]:
    """Returns the model of a folder, ready to predict; an ensemble is refused."""
    models, task, vocabulary, config = load_models(folder, device)
    if len(models) > 1:
        raise RunError(f"{folder} holds {len(models)} models that answer together; this takes one. Give the folder 'model' of the run.")
    return models[0], task, vocabulary, config


def _weight_files(folder: Path, count: int) -> tuple[Path, ...]:
    if count < 1:
        raise ValueError(f"config.json speaks of {count} models")
    names = [f"model-{number}.safetensors" for number in range(1, count + 1)] if count > 1 else ["model.safetensors"]
    return tuple(folder / name for name in names)


@contextmanager
def _damage_is_clear(folder: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError, DataError) as error:
        raise damaged(folder, str(error)) from error
