"""Attribution: which training texts led to a prediction, by the gradients of their losses and its
own.

A training step on a text lowers the loss at (query text, label) by the product of the two
gradients, to first order (TracIn, arXiv 2002.08484; ISS, arXiv 2305.12816). A model that has learnt
an example has hardly any gradient left there, but its direction remains: texts are therefore
compared by the cosine of the gradients (arXiv 2006.04528).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.device.machine import Machine
from tasklm.errors import RunError
from tasklm.evaluate.likelihood import windows_of
from tasklm.influence.gradients import (
    ProjectedGradients,
    Recorded,
    Watch,
    chosen_layers,
    parameters_in,
)
from tasklm.models.language_model import load_language_model, under
from tasklm.models.one_task import head_of
from tasklm.models.task_model import NORM, TaskModel, task_outputs
from tasklm.models.weights import load_weights
from tasklm.objectives.base import TwoHalves
from tasklm.run_folder import shipped_stage1
from tasklm.tasks.base import Task
from tasklm.tasks.several import member_of
from tasklm.tokens.batches import TokenBatch, padded_rows
from tasklm.tokens.examples import EncodedExamples

TOKENS = 4096  # of a forward pass, padding included
DRAWS = 4  # different corruptions of a passage
NEGLIGIBLE = 1e-5  # length of a gradient relative to the longest: less is rounding


@dataclass(frozen=True)
class Products:
    """Products of the gradients of texts with those of queries, and the lengths of both."""

    products: np.ndarray  # (texts, queries)
    lengths: np.ndarray  # (texts,)
    query_lengths: np.ndarray  # (queries,)

    def cosines(self) -> np.ndarray:
        """The cosines (texts, queries); 0 where a gradient is only rounding error."""
        rounding = NEGLIGIBLE * self.lengths.max(initial=0.0)
        both = self.lengths[:, None] * np.where(
            self.query_lengths > rounding, self.query_lengths, 0.0
        )
        zeros = np.zeros_like(self.products)
        cosines = np.divide(self.products, both, out=zeros, where=both > 0)
        return np.asarray(np.clip(cosines, -1.0, 1.0))


class ExampleAttribution:
    """Compares labelled examples by the gradients of a fine-tuned model's last layer and head."""

    def __init__(self, model: TaskModel, task: Task, machine: Machine) -> None:
        self.model = model.to(machine.device).eval().requires_grad_(False)
        self.task = task
        self.machine = machine
        layers = chosen_layers(model.encoder, "last")
        if _linear(model.head):
            layers.append(model.head)
        self.watch = Watch(layers)
        self.projected = ProjectedGradients(self.watch.parts, 0, 0)

    def products(self, queries: EncodedExamples, examples: EncodedExamples) -> Products:
        """The products of the examples' gradients with those of the queries; all have targets."""
        for given in (queries, examples):
            if len(given.units) != len(given.examples):
                raise RunError(
                    "explanations compare examples of one row each; an example of this task has "
                    "several. Use predict."
                )
        held = self._gradients(queries)
        products = np.zeros((len(examples), len(queries)))
        squares = np.zeros(len(examples))
        for numbers, rows in examples.in_order(max(1, TOKENS // examples.length)):
            for name, calls in self._recorded(rows).items():
                for some, gradients in self.projected.chunks(name, calls):
                    products[numbers[some]] += (gradients @ held[name].T).double().cpu().numpy()
                    squares[numbers[some]] += gradients.square().sum(1).double().cpu().numpy()
        own = sum(gradients.square().sum(1).double().cpu().numpy() for gradients in held.values())
        return Products(products, np.sqrt(squares), np.sqrt(own))

    def _gradients(self, queries: EncodedExamples) -> dict[str, Tensor]:
        held: dict[str, Tensor] = {}
        for numbers, rows in queries.in_order(max(1, TOKENS // queries.length)):
            for name, calls in self._recorded(rows).items():
                gradients = self.projected.of(name, calls)
                if name not in held:
                    held[name] = gradients.new_zeros(len(queries), gradients.shape[1])
                held[name][torch.from_numpy(numbers)] = gradients
        return held

    def _recorded(self, rows: TokenBatch) -> Recorded:
        with torch.enable_grad(), self.watch.watching():
            batch = rows.to(self.machine.device)
            assert batch.targets is not None
            loss = self.task.loss(self.model(batch), batch.targets)
            return self.watch.recorded(loss, len(rows.ids))


def _linear(head: nn.Module) -> bool:
    """Whether gradients of single examples can be computed for a head; not for a CRF."""
    return all(
        isinstance(part, (nn.Linear, nn.LayerNorm))
        for part in head.modules()
        if any(True for _ in part.parameters(recurse=False))
    )


class PassageAttribution:
    """Compares passages by the gradients of the last layer of stage 1, which was
    trained on them.
    """

    def __init__(self, run: Path, task: Task, device: torch.device) -> None:
        language = load_language_model(run, device)
        self.encoder = language.encoder
        self.objective = language.objective
        self.vocabulary = language.vocabulary
        self.length, self.device, self.task = language.length, device, task
        if isinstance(self.objective, TwoHalves):
            self.objective.second_half = (
                True  # the objective that the weights were trained with at the end
            )
        trained = under("head.", load_weights(shipped_stage1(run) / "model.safetensors"))
        normed = any(NORM.fullmatch(f"head.{name}") for name in trained)
        head = task.head(self.encoder.shape.width, 0.0, normed)
        self.head = head.to(device).eval()
        self.head.load_state_dict(trained)
        for module in (self.encoder, self.objective, self.head):
            module.requires_grad_(False)
        self.weights = parameters_in(chosen_layers(self.encoder, "last"))
        for weight in self.weights:
            weight.requires_grad_(True)

    def of(self, name: str) -> PassageAttribution:
        """The same for one of several tasks, with the same encoder."""
        own, member = copy(self), member_of(self.task, name)
        own.task, own.head = member.task, head_of(self.head, self.task, name)
        return own

    def products(self, queries: EncodedExamples, passages: Sequence[str]) -> Products:
        """The products of the passages' gradients with those of the queries, which have targets."""
        losses = (self._task_loss(queries, number) for number in range(len(queries)))
        held = torch.stack([self._gradient(loss) for loss in losses])
        products, lengths = np.zeros((len(passages), len(queries))), np.zeros(len(passages))
        for number, tokens in enumerate(self.vocabulary.encode(passages)):
            if tokens:
                gradient = self._gradient(self.language_loss(tokens))
                products[number] = (held @ gradient).double().cpu().numpy()
                lengths[number] = float(gradient.norm())
        return Products(products, lengths, held.norm(dim=1).double().cpu().numpy())

    def _task_loss(self, queries: EncodedExamples, number: int) -> Tensor:
        batch = queries.padded(np.array([number])).to(self.device)
        assert batch.targets is not None
        return self.task.loss(task_outputs(self.encoder, self.head, batch), batch.targets)

    def language_loss(self, tokens: list[int]) -> Tensor:
        """The loss that stage 1 had on a passage: the mean over the targets of some corruptions."""
        rows = [self.vocabulary.around(window) for window in windows_of(tokens, self.length - 2)]
        text = self.objective.corrupt(padded_rows(rows * DRAWS, self.vocabulary.pad), 0)
        losses = self.objective(self.encoder, text.to(self.device))
        parts = [
            self.objective.weights[name] / max(1, count) * losses[name]
            for name, count in self.objective.targets(text).items()
        ]
        return torch.stack(parts).sum()

    def _gradient(self, loss: Tensor) -> Tensor:
        gradients = torch.autograd.grad(
            loss, self.weights, allow_unused=True, materialize_grads=True
        )
        return torch.cat([gradient.flatten() for gradient in gradients])
