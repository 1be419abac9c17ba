"""Cross-view training of decoders (Clark et al., arXiv 1809.08370, section 3.4).

Two auxiliary decoders share embeddings and the first layers with the primary, but have an attention
to the source and a softmax layer of their own: one lacks a part of the attention by chance, the
other predicts the token after the next. They learn the texts that the primary writes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Encoder
from tasklm.models.task_model import TaskModel
from tasklm.recipe.raw_text import CROSS_VIEW
from tasklm.students.base import (
    WRITING_STUDENTS,
    Classroom,
    RawBatch,
    answering_flops,
    pass_flops,
    text_holds,
)
from tasklm.students.cross_view import CrossView, loss_of
from tasklm.tasks.heads.decoders import Table, draw, given_tokens, source_of
from tasklm.tokens.batches import TokenBatch


@WRITING_STUDENTS.register(CROSS_VIEW)
class AuxiliaryDecoders(CrossView):
    """The auxiliary decoders; each has a loss of its own."""

    def __init__(self, room: Classroom, encoder: Encoder) -> None:
        super().__init__(room, encoder)
        width, types = encoder.shape.width, encoder.shape.vocabulary
        # by the embeddings they would teach the primary its own words
        self.softmaxes = nn.ModuleList(nn.Linear(width, types, bias=False) for _ in self.names)
        for layer in self.softmaxes:
            draw(layer, width**-0.5)  # type: ignore[arg-type]

    def prepare(self, batch: TokenBatch, seed: int) -> RawBatch:
        """The batch itself: all see it, each in its way."""
        holds = text_holds(self.consistency, batch)
        return RawBatch(batch, holds, dict.fromkeys(map(loss_of, self.names), holds))

    def forward(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The cross-entropy of each decoder against what the primary wrote."""
        decoder: Any = model.head
        table = Table.of(model.encoder, decoder.width)
        memory, seen = source_of(model.encoder, raw.text)
        given = given_tokens(raw.text.ids, targets)
        states = decoder.before_source(table, memory, seen, given)
        losses = {}
        modules = self.modules_by_name()
        for (name, module), softmax in zip(modules.items(), self.softmaxes, strict=True):
            outputs = softmax(module(states, memory, seen))
            losses[loss_of(name)] = self.consistency.auxiliary_divergence(
                name, outputs, targets, raw.masks[loss_of(name)]
            )
        return losses

    def flops(self, cost: EncoderCost, head: Any, raw: RawBatch) -> float:
        """What the primary takes to write, and a pass of the encoder and of each decoder to learn
        from, for texts as long as their sources.
        """
        rows, length = raw.text.ids.shape
        logits = 2.0 * rows * length * cost.vocabulary * head.width
        modules = self.modules_by_name().values()
        learning = sum(module.flops(rows, length) + logits for module in modules)
        read = pass_flops(cost, learning, raw.text, raw.text.ids)
        return answering_flops(cost, head, raw.text, self.consistency) + 3 * read
