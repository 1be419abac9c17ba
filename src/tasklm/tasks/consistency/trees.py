"""Consistency of trees: four pairings of the views of dependents and heads.

The thesis has one softmax over all heads and relations of a word. Our parser has two, as Dozat and
Manning have (arXiv 1611.01734): one over heads, and one over the relations of an arc. Hence two
divergences are added up: that of the heads, and that of the relations of the arc that the primary
module holds most likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tasklm.tasks.consistency.base import BACKWARD, FORWARD, WHOLE, Auxiliary
from tasklm.tasks.consistency.modules import PairModule
from tasklm.tasks.heads.soft_losses import divergence_of_classes

NORM = 1.0  # of virtual adversarial noise, twice that of other kinds
HIDDEN = -1e30  # score of what is no head: finite, so that 0 · (HIDDEN − HIDDEN) is 0
SIDES = (FORWARD, BACKWARD)


@dataclass(frozen=True)
class TreeConsistency:
    """Targets are all scores of the primary module."""

    relations: int
    of_words = True
    norm = NORM

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which places are words: all but the first, the root."""
        return there & (columns > 0)

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The scores of arcs and relations (rows, places, places, 1 + relations)."""
        return outputs.float()

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """That of the heads, and that of the relations of the best arc, summed over words."""
        may_be_head = torch.cat([torch.ones_like(holds[:, :1]), holds[:, 1:]], 1).unsqueeze(1)
        arcs = outputs[..., 0].float().masked_fill(~may_be_head, HIDDEN)
        wanted = targets[..., 0].masked_fill(~may_be_head, HIDDEN)
        of_heads = divergence_of_classes(arcs, wanted, holds)
        best = wanted.argmax(-1)[..., None, None].expand(-1, -1, 1, self.relations)
        own, their = (scores[..., 1:].gather(2, best).squeeze(2) for scores in (outputs, targets))
        return of_heads + divergence_of_classes(own, their, holds)

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """Full, and each pairing of a side that the dependent has read with one of the head."""
        modules: dict[str, Auxiliary] = {
            "full": PairModule((WHOLE, WHOLE), whole, self.relations, dropout)
        }
        for side in SIDES:
            for other in SIDES:
                modules[f"{side}-{other}"] = PairModule(
                    (side, other), view, self.relations, dropout
                )
        return modules

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The same for all modules."""
        return self.divergence(outputs, targets, holds)
