"""The trained model: encoder, head, vocabulary and labels; saved as a folder of safetensors and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tasklm.costs import EncoderCost
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.errors import RunError
from tasklm.runs import read_json, write_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.checkpoints import load_weights, save_weights
from tasklm.train.hardware import Machine

FORMAT = 2


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


def task_outputs(encoder: nn.Module, head: Any, batch: TokenBatch) -> Tensor:
    """Returns a head's outputs on a batch; the encoder computes what the head reads."""
    outputs: Tensor = head(encoder(batch, batch.first_places() if head.reads_firsts else None))
    return outputs


def new_encoder(name: str, shape: Shape) -> Any:
    """Returns a freshly drawn encoder of the named architecture."""
    return ENCODERS.get(name)(shape)


def outputs_of(model: nn.Module, examples: EncodedExamples, machine: Machine, batch: int = 64) -> Tensor:
    """Returns the model's outputs for all examples, in their order, on the CPU."""
    was_training = model.training
    model.eval()
    collected: list[Tensor] = []
    order: list[np.ndarray] = []
    with torch.inference_mode(), machine.arithmetic():
        for numbers, rows in examples.in_order(batch):
            collected.append(model(rows.to(machine.device)).float().cpu())
            order.append(numbers)
    model.train(was_training)
    back = np.argsort(np.concatenate(order), kind="stable")
    return torch.cat(collected)[torch.from_numpy(back)].clone()


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
