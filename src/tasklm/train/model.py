"""The trained model: encoder, head, vocabulary and labels; saved as a folder of safetensors and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tasklm.costs import EncoderCost
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.errors import RunError
from tasklm.runs import read_json, write_json
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


def save_model(
    folder: Path,
    encoder_name: str,
    encoder: Encoder,
    model: nn.Module,
    task: Task,
    vocabulary: Vocabulary,
    length: int,
    about: dict[str, Any],
) -> None:
    """Writes weights, vocabulary and all that is needed to predict; no code and nothing pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder / "model.safetensors", model.state_dict())
    vocabulary.save(folder / "tokenizer.json")
    config = {
        "format": FORMAT,
        "encoder": encoder_name,
        "shape": encoder.shape.to_dict(),
        "task": task.to_dict(),
        "length": length,
    }
    write_json(folder / "config.json", {**config, "about": about})


def load_model(folder: Path, device: torch.device) -> tuple[TaskModel, Task, Vocabulary, dict[str, Any]]:
    """Returns the model of a folder, ready to predict."""
    path = folder / "config.json"
    if not path.exists():
        raise RunError(f"{folder} holds no model (there is no config.json). Give the folder 'model' of a finished run.")
    config = read_json(path)
    if config.get("format") != FORMAT:
        raise RunError(f"{path} has format {config.get('format')!r}, this version reads {FORMAT}. Train the model again.")
    try:
        task = TASKS.get(config["task"]["kind"]).from_dict(config["task"])
        encoder = new_encoder(config["encoder"], Shape(**config["shape"]))
        model = TaskModel(encoder, task.head(encoder.shape.width, 0.0))
        model.load_state_dict(load_weights(folder / "model.safetensors"))
        vocabulary = Vocabulary.load(folder / "tokenizer.json")
    except (KeyError, TypeError, RuntimeError, OSError, SafetensorError) as error:
        raise RunError(f"{folder} is damaged ({error}). Copy it again from where it was trained.") from error
    return model.to(device).eval(), task, vocabulary, config
