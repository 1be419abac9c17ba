"""Consistency of tags: five views of each word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tasklm.tasks.consistency.base import (
    BACKWARD,
    FORWARD,
    FUTURE,
    PAST,
    USUAL_NORM,
    WHOLE,
    Auxiliary,
)
from tasklm.tasks.consistency.modules import state_modules
from tasklm.tasks.heads.crf import crf_divergence, marginal_logits
from tasklm.tasks.heads.soft_losses import divergence_of_classes

VIEWS = (WHOLE, FORWARD, BACKWARD, FUTURE, PAST)


@dataclass(frozen=True)
class TagConsistency:
    """Targets are the probabilities of each word's tags; of a CRF their marginals."""

    tags: int
    crf: bool = False
    of_words = True
    norm = USUAL_NORM

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which places are words: all but the first token, the place of a text without words."""
        return there & (columns > 0)

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The logits of each word's tags."""
        if self.crf:
            return marginal_logits(outputs, holds)
        return outputs.float()

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """The divergence of the head's outputs; a CRF's is that of whole sequences."""
        if self.crf:
            return crf_divergence(outputs, targets, holds)
        return divergence_of_classes(outputs, targets, holds)

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """Full, forward, backward, future and past, each with a layer of its own."""
        widths = {name: whole if name == WHOLE else view for name in VIEWS}
        return state_modules(VIEWS, widths, self.tags, dropout)

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The divergence of a module, which answers word by word."""
        return divergence_of_classes(outputs, targets, holds)
