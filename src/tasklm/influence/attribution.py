"""Which texts pushed a prediction where it is: the gradients of their losses beside that of the
prediction's own.

A step of training on a text lowers the loss at (text asked about, label) by the product of the two
gradients, to first order (TracIn, arXiv 2002.08484; ISS, arXiv 2305.12816). A model that has learnt
an example has hardly any gradient left there, while its direction stays: texts are therefore
compared by the cosine of the gradients (arXiv 2006.04528).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.device.machine import Machine
from tasklm.errors import RunError
from tasklm.evaluate.likelihood import windows_of
from tasklm.influence.gradients import Kept, Numbers, Watch, chosen_layers
from tasklm.models.language_model import load_language_model, under
from tasklm.models.task_model import TaskModel, task_outputs
from tasklm.models.weights import load_weights
from tasklm.objectives.base import TwoHalves
from tasklm.run_folder import shipped_stage1
from tasklm.tasks.base import Task
from tasklm.tokens.batches import TokenBatch, padded_rows
from tasklm.tokens.examples import EncodedExamples

TOKENS = 4096  # of a forward pass, padding included
DRAWS = 4  # times that a passage is corrupted, each time otherwise


@dataclass(frozen=True)
class Products:
    """Products of the gradients of texts with those of the texts asked about, and the lengths of
    both.
    """

    products: np.ndarray  # (texts, asked)
    lengths: np.ndarray  # (texts,)
    asked: np.ndarray  # (asked,)

    def cosines(self) -> np.ndarray:
        """The cosines (texts, asked); 0 where a gradient has no length."""
        both = self.lengths[:, None] * self.asked
        return np.asarray(
            np.clip(
                np.divide(self.products, both, out=np.zeros_like(self.products), where=both > 0),
                -1.0,
                1.0,
            )
        )


class TaskPushes:
    """Pushes of labelled examples on a fine-tuned model: by the weights of its last layer and,
    where it is made of such, its head.
    """

    def __init__(self, model: TaskModel, task: Task, machine: Machine) -> None:
        self.model = model.to(machine.device).eval().requires_grad_(False)
        self.task = task
        self.machine = machine
        self.watch = Watch(
            [*chosen_layers(model.encoder, "last"), *([model.head] if _linear(model.head) else [])]
        )
        self.numbers = Numbers(self.watch.parts, 0, 0)

    def products(self, asked: EncodedExamples, examples: EncodedExamples) -> Products:
        """The products of the examples' gradients with those of the texts asked about; all have
        targets.
        """
        for given in (asked, examples):
            if len(given.units) != len(given.examples):
                raise RunError(
                    "explanations compare examples that are one row "
                    "each; those of this task are several. Use predict."
                )
        held = self._gradients(asked)
        found = np.zeros((len(examples), len(asked)))
        squares = np.zeros(len(examples))
        for numbers, rows in examples.in_order(max(1, TOKENS // examples.length)):
            for name, calls in self._kept(rows).items():
                for some, gradients in self.numbers.chunks(name, calls):
                    found[numbers[some]] += (gradients @ held[name].T).double().cpu().numpy()
                    squares[numbers[some]] += gradients.square().sum(1).double().cpu().numpy()
        own = sum(gradients.square().sum(1).double().cpu().numpy() for gradients in held.values())
        return Products(found, np.sqrt(squares), np.sqrt(own))

    def _gradients(self, asked: EncodedExamples) -> dict[str, Tensor]:
        held: dict[str, Tensor] = {}
        for numbers, rows in asked.in_order(max(1, TOKENS // asked.length)):
            for name, calls in self._kept(rows).items():
                found = self.numbers.of(name, calls)
                held.setdefault(name, found.new_zeros(len(asked), found.shape[1]))[
                    torch.from_numpy(numbers)
                ] = found
        return held

    def _kept(self, rows: TokenBatch) -> Kept:
        with torch.enable_grad(), self.watch.watching():
            there = rows.to(self.machine.device)
            assert there.targets is not None
            return self.watch.kept(self.task.loss(self.model(there), there.targets), len(rows.ids))


def _linear(head: nn.Module) -> bool:
    """Whether all weights of a head are of kinds whose gradients for single examples are known;
    those of a CRF are not.
    """
    return all(
        isinstance(part, (nn.Linear, nn.LayerNorm))
        for part in head.modules()
        if any(True for _ in part.parameters(recurse=False))
    )


class PassagePushes:
    """Pushes of unlabelled passages on the model of stage 1, which learnt from them and from the
    task: by its last layer's weights.
    """

    def __init__(self, run: Path, task: Task, device: torch.device) -> None:
        language = load_language_model(run, device)
        self.encoder = language.encoder
        self.objective = language.objective
        self.vocabulary = language.vocabulary
        self.length, self.device, self.task = language.length, device, task
        if isinstance(self.objective, TwoHalves):
            self.objective.second_half = True  # what the weights on disk were trained by at the end
        trained = under("head.", load_weights(shipped_stage1(run) / "model.safetensors"))
        self.head = (
            task.head(self.encoder.shape.width, 0.0, "norm.weight" in trained).to(device).eval()
        )
        self.head.load_state_dict(trained)
        for module in (self.encoder, self.objective, self.head):
            module.requires_grad_(False)
        self.weights = [
            weight for layer in chosen_layers(self.encoder, "last") for weight in layer.parameters()
        ]
        for weight in self.weights:
            weight.requires_grad_(True)

    def products(self, asked: EncodedExamples, passages: Sequence[str]) -> Products:
        """The products of the passages' gradients with those of the texts asked about, which have
        targets.
        """
        held = torch.stack(
            [self._gradient(self._task_loss(asked, number)) for number in range(len(asked))]
        )
        found, lengths = np.zeros((len(passages), len(asked))), np.zeros(len(passages))
        for place, tokens in enumerate(self.vocabulary.encode(passages)):
            if tokens:
                gradient = self._gradient(self.language_loss(tokens))
                found[place] = (held @ gradient).double().cpu().numpy()
                lengths[place] = float(gradient.norm())
        return Products(found, lengths, held.norm(dim=1).double().cpu().numpy())

    def _task_loss(self, asked: EncodedExamples, number: int) -> Tensor:
        batch = asked.padded(np.array([number])).to(self.device)
        assert batch.targets is not None
        return self.task.loss(task_outputs(self.encoder, self.head, batch), batch.targets)

    def language_loss(self, tokens: list[int]) -> Tensor:
        """The loss that stage 1 had on a passage: the mean over its targets, of several corruptions
        together.
        """
        rows = [self.vocabulary.around(window) for window in windows_of(tokens, self.length - 2)]
        text = self.objective.corrupt(padded_rows(rows * DRAWS, self.vocabulary.pad), 0)
        losses = self.objective(self.encoder, text.to(self.device))
        parts = [
            self.objective.weights[name] / max(1, count) * losses[name]
            for name, count in self.objective.targets(text).items()
        ]
        return torch.stack(parts).sum()

    def _gradient(self, loss: Tensor) -> Tensor:
        found: Any = torch.autograd.grad(loss, self.weights, allow_unused=True)
        return torch.cat(
            [
                (torch.zeros_like(w) if part is None else part).flatten()
                for w, part in zip(self.weights, found, strict=True)
            ]
        )
