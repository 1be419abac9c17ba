"""The biaffine head of a dependency parser and its loss.

Dozat and Manning, "Deep Biaffine Attention for Neural Dependency Parsing" (arXiv 1611.01734),
sections 3.2 and 3.3, on the states of the encoder in place of their LSTM's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.base import NONE

ARC, RELATION = 500, 100  # widths of the paper's representations; never wider than the encoder
SLOPE = 0.1  # of leaky ReLU below 0


class BiaffineHead(nn.Module):
    """Scores of each place as head of each place, and of each relation between them."""

    def __init__(self, width: int, relations: int, dropout: float) -> None:
        super().__init__()
        self.sizes = (min(ARC, width), min(RELATION, width))
        arc, relation = self.sizes
        self.dropout = nn.Dropout(dropout)
        self.as_dependent = nn.Linear(width, arc + relation)
        self.as_head = nn.Linear(width, arc + relation)
        self.arcs = nn.Parameter(
            torch.zeros(arc + 1, arc)
        )  # its last row: how likely a word is a head at all
        self.relations = nn.Parameter(torch.zeros(relations, relation + 1, relation + 1))
        for linear in (self.as_dependent, self.as_head):
            nn.init.orthogonal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on states of so many rows and places: by place, and by pair
        of places.
        """
        (arc, _), relations, wide = self.sizes, len(self.relations), self.relations.shape[-1]
        by_place = 2 * self.as_head.weight.numel() + self.arcs.numel() + self.relations.numel()
        return 2.0 * rows * places * (by_place + places * (arc + relations * wide))

    def forward(self, states: Tensor, heads: Tensor | None = None) -> Tensor:
        """Scores (rows, places, places, 1 + relations) of states (rows, places, width): [d, h] is
        about head h of dependent d. `heads` are other states of the places as heads.
        """
        states = self.dropout(states)
        others = states
        if heads is not None:
            others = self.dropout(heads)
        of_dependent, of_head = (
            self.dropout(functional.leaky_relu(linear(own), SLOPE)).split(self.sizes, -1)
            for linear, own in ((self.as_dependent, states), (self.as_head, others))
        )
        arcs = _with_one(of_dependent[0]) @ self.arcs @ of_head[0].transpose(1, 2)
        relations = torch.einsum(
            "bdi,rij,bhj->bdhr", _with_one(of_dependent[1]), self.relations, _with_one(of_head[1])
        )
        return torch.cat([arcs.unsqueeze(3), relations], 3)


def _with_one(values: Tensor) -> Tensor:
    return functional.pad(values, (0, 1), value=1.0)


def head_scores(outputs: Tensor, head: Tensor) -> Tensor:
    """The scores (rows, places, places) of heads; padding, whose own head is NONE, is none."""
    may_be_head = head != NONE
    may_be_head = torch.cat([torch.ones_like(may_be_head[:, :1]), may_be_head[:, 1:]], 1)
    return outputs[..., 0].masked_fill(~may_be_head.unsqueeze(1), -torch.inf)


def arc_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of heads, and of relations at the heads of gold, summed over words, in
    fp32.

    Targets (rows, places, 2) are the place of the head and the relation: NONE for place 0 (the
    root) and for padding, which is no word's head, UNKNOWN for what adds nothing.
    """
    outputs = outputs.float()
    head, relation = targets.unbind(2)
    arcs = head_scores(outputs, head)
    known = torch.where(head >= 0, head, NONE)
    loss = functional.cross_entropy(
        arcs.flatten(0, 1), known.flatten(), ignore_index=NONE, reduction="sum"
    )
    at_head = head.clamp(min=0)[..., None, None].expand(-1, -1, 1, outputs.shape[3] - 1)
    relations = outputs[..., 1:].gather(2, at_head).squeeze(2)
    known = torch.where((head >= 0) & (relation >= 0), relation, NONE)
    return loss + functional.cross_entropy(
        relations.flatten(0, 1), known.flatten(), ignore_index=NONE, reduction="sum"
    )
