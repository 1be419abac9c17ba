"""Consistency of classes and of label sets: the halves of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tasklm.errors import RecipeError
from tasklm.tasks.consistency.base import (
    FIRST_HALF,
    SECOND_HALF,
    USUAL_NORM,
    WHOLE,
    Auxiliary,
)
from tasklm.tasks.consistency.modules import state_modules
from tasklm.tasks.heads.soft_losses import divergence_of_classes, divergence_of_labels

VIEWS = (WHOLE, FIRST_HALF, SECOND_HALF)


@dataclass(frozen=True)
class TextConsistency:
    """Targets are the probabilities of the classes, or of each label by itself."""

    outputs: int
    independent: bool = False  # labels, of which a text may have several
    reads: int = 1  # places that make an answer
    of_words = False
    norm = USUAL_NORM

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which answers are of a text."""
        return there[:, :: self.reads]

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The logits of the classes or labels."""
        return outputs.float()

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """The divergence of the classes, or the sum of those of the labels."""
        if self.independent:
            return divergence_of_labels(outputs, targets, holds)
        return divergence_of_classes(outputs, targets, holds)

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """Full, first half and second half: the whole encoder reads a half of the text."""
        if self.reads > 1:
            problem = "half of a text may lack the marks that the head reads (kind.marks)"
            way_out = "choose word-dropout or vat, or read no marks: --kind.marks ''"
            raise RecipeError([f"finetune.unlabelled = cross-view: {problem}; {way_out}"])
        widths = dict.fromkeys(VIEWS, whole)
        return state_modules(VIEWS, widths, self.outputs, dropout)

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The same for all modules."""
        return self.divergence(outputs, targets, holds)
