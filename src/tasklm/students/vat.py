"""Virtual adversarial training (Miyato et al., arXiv 1704.03976; on embeddings of text: arXiv
1605.07725): the model learns to agree with itself where the noise that would change its answers
most is added to the embeddings.

The direction is found by one step of power iteration: the gradient of the divergence at a small
random displacement. Our embeddings come out of a LayerNorm, so that the model cannot escape the
noise by making them large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.encoders.base import Encoder
from tasklm.models.task_model import TaskModel
from tasklm.recipe.raw_text import VAT
from tasklm.students.base import (
    STUDENTS,
    Classroom,
    RawBatch,
    Student,
    noisy_outputs,
    pass_flops,
    text_holds,
)
from tasklm.tokens.batches import TokenBatch

# norm of the displacement at which the gradient is taken; the paper's 1e-6 is lost in bf16
DISPLACED = 0.1
LEAST = 1e-12  # norm that noise is divided by


@STUDENTS.register(VAT)
class VirtualAdversary(Student):
    """Adds adversarial noise to the embeddings, of one norm for each example."""

    def __init__(self, room: Classroom, encoder: Encoder) -> None:
        super().__init__(room, encoder)
        self.norm = room.settings.vat_norm
        if self.norm is None:
            self.norm = room.consistency.norm
        self._compiled: Callable[[TaskModel, RawBatch, Tensor, Tensor], Tensor] | None = None

    def prepare(self, batch: TokenBatch, seed: int) -> RawBatch:
        """The batch itself: noise is drawn on the device."""
        holds = text_holds(self.consistency, batch)
        return RawBatch(batch, holds, {VAT: holds})

    def search(self, model: TaskModel, raw: RawBatch, targets: Tensor, machine: Machine) -> Tensor:
        """The noise: of the direction in which answers change most."""
        encoder: Any = model.encoder
        with torch.no_grad():
            embedded = encoder.embed(raw.text).float()
        drawn = torch.randn_like(embedded)
        displaced = (DISPLACED * unit(drawn, raw.text)).requires_grad_()
        if self._compiled is None:
            self._compiled = machine.compiled(self._disturbance, False)
        with torch.enable_grad(), still(model):
            loss = self._compiled(model, raw, targets, embedded + displaced)
            (gradient,) = torch.autograd.grad(loss, displaced)
        assert self.norm is not None
        return self.norm * unit(gradient, raw.text)

    def _disturbance(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, embedded: Tensor
    ) -> Tensor:
        """The divergence of the model's answers to a text with these embeddings."""
        outputs = noisy_outputs(model, embedded, raw.text)
        return self.consistency.divergence(outputs, targets, raw.masks[VAT])

    def forward(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The divergence of the model's answers to the text with noise."""
        assert noise is not None
        encoder: Any = model.encoder
        embedded = encoder.embed(raw.text) + noise
        return {VAT: self._disturbance(model, raw, targets, embedded)}

    def flops(self, cost: EncoderCost, head: Any, raw: RawBatch) -> float:
        """A pass of the primary, two to find the noise, for which no weight has a gradient, and
        three to learn from it.
        """
        assert raw.text.places is not None
        own = head.flops(*raw.text.places.shape)
        return 6 * pass_flops(cost, own, raw.text, raw.text.places)


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """A context in which no weight of a model takes gradients: a compiled pass would compute them
    all, whoever wants them.
    """
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def unit(noise: Tensor, batch: TokenBatch) -> Tensor:
    """Noise (rows, length, width) brought to norm 1 in each text, and to 0 at padding."""
    rows, length = batch.pieces.shape
    squares = noise.new_zeros(rows, length + 1).scatter_add(1, batch.pieces, noise.square().sum(-1))
    norms = squares.gather(1, batch.pieces).sqrt().clamp(min=LEAST)
    inside = (batch.pieces > 0).to(noise.dtype)
    return noise * (inside / norms).unsqueeze(-1)
