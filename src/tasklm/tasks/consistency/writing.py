"""Consistency of written texts: what the primary decoder writes is the target, as it stands.

A text that nobody translated has no tokens to be right or wrong after, so that there are no
probabilities to agree with: the primary writes it with a beam, and its students learn that text
(Clark et al., arXiv 1809.08370, section 3.4; Kim and Rush, arXiv 1606.07947).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.base import NONE
from tasklm.tasks.consistency.base import USUAL_NORM, Auxiliary
from tasklm.tasks.heads.decoders import context_of, draw
from tasklm.tasks.writing import ENDED, FIRST, Search

SMOOTHING = 0.1  # share of each target that is spread over all tokens
HIDDEN_SHARE = 0.5  # of the attention of the module that sees a part of the source
ATTENTION, FUTURE = "attention", "future"
AHEAD = {ATTENTION: 0, FUTURE: 1}  # how many tokens later the one is that a module predicts
WIDTHS = 32  # written texts are padded to a multiple, so that few shapes are compiled


class AuxiliaryDecoder(Auxiliary):
    """Attention of its own, and a map: reads the decoder before that has looked at the source."""

    reads = ()

    def __init__(self, width: int, hidden: float, dropout: float) -> None:
        super().__init__()
        self.hidden = hidden
        self.attention = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        for part in (self.attention, self.out):
            draw(part, part.in_features**-0.5)

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on texts as long as their sources, the logits aside."""
        maps = self.attention.weight.numel() + self.out.weight.numel()
        return 2.0 * rows * places * (maps + 2 * places * self.attention.in_features)

    def forward(self, states: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        """What predicts tokens (rows, length, width), from the decoder's states (rows, length,
        width), and those of the source, of which `seen` (rows, source) are tokens.
        """
        hidden = self.hidden if self.training else 0.0
        context = context_of(self.attention(states), memory, seen, hidden)
        together: Tensor = torch.tanh(self.out(torch.cat((context, states), -1)))
        dropped: Tensor = self.dropout(together)
        return dropped


@dataclass(frozen=True)
class WritingConsistency:
    """Targets are the tokens (rows, length) that the primary writes, NONE after the last."""

    search: Search
    of_words = False
    norm = USUAL_NORM

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which rows have a text."""
        return there[:, :1]

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The tokens of the best candidates of a search (rows, 1, beam, 2 + tokens); a text that
        has no end is none to learn from.
        """
        best = outputs[:, 0, 0]
        texts, ended = best[:, FIRST:].long(), best[:, ENDED, None] > 0
        tokens = texts.masked_fill((texts < 0) | ~ended, NONE)
        return functional.pad(tokens, (0, -tokens.shape[1] % WIDTHS), value=NONE)

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """The cross-entropy of a token, on average over each text, summed over texts."""
        rows, length, types = outputs.shape
        losses = functional.cross_entropy(
            outputs.float().reshape(-1, types),
            targets.reshape(-1),
            ignore_index=NONE,
            reduction="none",
            label_smoothing=SMOOTHING,
        )
        counts = (targets != NONE).sum(1).clamp(min=1)
        means = losses.view(rows, length).sum(1) / counts
        return means.masked_fill(~holds[:, 0], 0.0).sum()

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """One decoder that sees a part of the source, and one that looks ahead."""
        return {
            ATTENTION: AuxiliaryDecoder(whole, HIDDEN_SHARE, dropout),
            FUTURE: AuxiliaryDecoder(whole, 0.0, dropout),
        }

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The same, against the tokens that the named module predicts."""
        ahead = AHEAD[name]
        return self.divergence(outputs[:, : outputs.shape[1] - ahead], targets[:, ahead:], holds)
