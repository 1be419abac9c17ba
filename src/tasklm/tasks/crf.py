"""Linear-chain conditional random fields as functions of potentials: likelihood and best sequence.

The potentials of a row are (places, tags, tags): [place, i, j] is the score of tag j there when tag i stands before it. At the
first place row i = 0 holds the scores of beginning with j. Lafferty, McCallum and Pereira, "Conditional Random Fields:
Probabilistic Models for Segmenting and Labeling Sequence Data" (ICML 2001).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.base import NONE


class CrfHead(nn.Module):
    """Emissions from the states, and a learned score for each pair of neighbouring tags."""

    def __init__(self, width: int, tags: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, tags)
        self.start = nn.Parameter(torch.zeros(tags))
        self.transition = nn.Parameter(torch.zeros(tags, tags))  # (before, after)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Returns the potentials (rows, places, tags, tags) of states (rows, places, width)."""
        emissions: Tensor = self.out(self.dropout(states)).unsqueeze(2)
        first = (emissions[:, :1] + self.start).expand(-1, -1, self.start.numel(), -1)
        return torch.cat([first, emissions[:, 1:] + self.transition], 1)


def negative_log_likelihood(potentials: Tensor, targets: Tensor) -> Tensor:
    """Returns minus the log-likelihood of the targets (rows, places), summed over rows, in fp32, by the forward algorithm.

    Places whose target is NONE are skipped: the value is that of rows without them.
    """
    potentials = potentials.float()
    there = targets != NONE
    alpha = potentials.new_full((len(potentials), potentials.shape[3]), -torch.inf)
    alpha[:, 0] = 0.0  # as if tag 0 stood before each row
    for place in range(potentials.shape[1]):
        after = torch.logsumexp(alpha.unsqueeze(2) + potentials[:, place], 1)
        alpha = torch.where(there[:, place, None], after, alpha)
    tags = functional.pad(targets.clamp(min=0), (1, 0))
    last = (torch.arange(1, tags.shape[1], device=tags.device) * there).cummax(1).values  # place of the last target so far, from 1 on
    before = tags.gather(1, functional.pad(last, (1, 0))[:, :-1])
    of_before = potentials.gather(2, before[..., None, None].expand(-1, -1, 1, potentials.shape[3])).squeeze(2)
    gold = of_before.gather(2, tags[:, 1:, None]).squeeze(2)
    return torch.logsumexp(alpha, 1).sum() - torch.where(there, gold, 0.0).sum()


def best_tags(potentials: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the sequence of tags with the highest score for one row of potentials, without padding (Viterbi)."""
    places = len(potentials)
    tags = np.zeros(places, np.int64)
    if not places:
        return tags
    best = potentials[0, 0].astype(np.float64)
    backwards = np.zeros(potentials.shape[:1] + potentials.shape[2:], np.int64)
    for place in range(1, places):
        scores = best[:, None] + potentials[place]
        backwards[place] = scores.argmax(0)
        best = scores.max(0)
    tags[-1] = best.argmax()
    for place in range(places - 1, 0, -1):
        tags[place - 1] = backwards[place, tags[place]]
    return tags
