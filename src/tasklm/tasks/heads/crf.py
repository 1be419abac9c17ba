"""Linear-chain conditional random fields as functions of potentials: likelihood and divergence.

The potentials of a row are (places, tags, tags): [place, i, j] is the score of tag j there when tag
i stands before it. At the first place row i = 0 holds the scores of beginning with j. Lafferty,
McCallum and Pereira, "Conditional Random Fields: Probabilistic Models for Segmenting and Labeling
Sequence Data" (ICML 2001).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.base import NONE

LEAST = 1e-8  # probability of a tag, where its logarithm is taken


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

    def flops(self, rows: int, places: int) -> float:
        """The FLOPs of a forward pass on states of so many rows and places; sums over paths are no
        matrix products.
        """
        return 2.0 * rows * places * self.out.weight.numel()

    def forward(self, states: Tensor) -> Tensor:
        """The potentials (rows, places, tags, tags) of states (rows, places, width)."""
        emissions: Tensor = self.out(self.dropout(states)).unsqueeze(2)
        first = (emissions[:, :1] + self.start).expand(-1, -1, self.start.numel(), -1)
        return torch.cat([first, emissions[:, 1:] + self.transition], 1)


def negative_log_likelihood(potentials: Tensor, targets: Tensor) -> Tensor:
    """The negative log-likelihood of the targets (rows, places), summed over rows, in fp32.

    Places whose target is NONE are skipped: the value is that of rows without them.
    """
    loss: Tensor = _loss_and_gradient(potentials.float(), targets)[0]
    return loss


# One operation to `torch.compile`, which would otherwise unroll the loops: a minute and more of
# compiling. It hands over the gradient with the loss, since both need the same sums.
@torch.library.custom_op("tasklm::crf_loss", mutates_args=())
def _loss_and_gradient(potentials: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient, by the forward-backward algorithm."""
    rows, places, tags, _ = potentials.shape
    there = targets != NONE
    forward = potentials.new_full(
        (places + 1, rows, tags), -torch.inf
    )  # log-sums of the ways to a tag before each place
    forward[0, :, 0] = 0.0  # as if tag 0 stood before each row
    backward = potentials.new_zeros((places + 1, rows, tags))  # and of the ways on from a tag
    for place in range(places):
        after = torch.logsumexp(forward[place].unsqueeze(2) + potentials[:, place], 1)
        forward[place + 1] = torch.where(there[:, place, None], after, forward[place])
    for place in reversed(range(places)):
        before = torch.logsumexp(potentials[:, place] + backward[place + 1].unsqueeze(1), 2)
        backward[place] = torch.where(there[:, place, None], before, backward[place + 1])
    total = torch.logsumexp(forward[places], 1)
    ways = (
        forward[:-1].transpose(0, 1).unsqueeze(3)
        + potentials
        + backward[1:].transpose(0, 1).unsqueeze(2)
    )
    shares = torch.where(
        there[..., None, None], (ways - total[:, None, None, None]).exp(), 0.0
    ).flatten(2)
    steps = _steps(targets, tags).unsqueeze(2)
    gold = torch.where(there, potentials.flatten(2).gather(2, steps).squeeze(2), 0.0)
    shares.scatter_add_(2, steps, -there.to(shares.dtype).unsqueeze(2))
    return total.sum() - gold.sum(), shares.contiguous().view(rows, places, tags, tags)


def _steps(targets: Tensor, tags: int) -> Tensor:
    """The number, before · tags + tag, of the step that gold takes to each place (rows, places)."""
    padded = functional.pad(targets.clamp(min=0), (1, 0))
    numbers = torch.arange(1, padded.shape[1], device=targets.device) * (targets != NONE)
    last = functional.pad(numbers.cummax(1).values, (1, 0))[
        :, :-1
    ]  # where the target before each place stands, from 1 on; 0: nowhere
    return padded.gather(1, last) * tags + padded[:, 1:]


@_loss_and_gradient.register_fake
def _(potentials: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return potentials.new_empty(()), potentials.new_empty(potentials.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _differentiate(ctx: Any, by_loss: Tensor, by_gradient: Tensor) -> tuple[Tensor, None]:
    (gradient,) = ctx.saved_tensors
    return by_loss * gradient, None


_loss_and_gradient.register_autograd(_differentiate, setup_context=_keep)


def soft_negative_log_likelihood(potentials: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """The expected negative log-likelihood of tags drawn from what teachers say, summed over rows.

    `taught` (rows, places, tags) are logits of each word's tag, and words are drawn independently.
    Targets tell which places hold a word; these come first in a row.
    """
    potentials, there = potentials.float(), targets != NONE
    tags = potentials.shape[-1]
    shares = taught.float().softmax(-1).masked_fill(~there.unsqueeze(-1), 0.0)
    before = functional.pad(shares[:, :-1], (0, 0, 1, 0))
    before[:, 0, 0] = 1.0  # as if tag 0 stood before each row
    steps = _steps(targets, tags).unsqueeze(2)
    gold = torch.where(there, potentials.flatten(2).gather(2, steps).squeeze(2), 0.0).sum()
    expected = (before.unsqueeze(3) * shares.unsqueeze(2) * potentials).sum()
    # the likelihood of the targets without their score leaves the log-sum over all sequences
    return negative_log_likelihood(potentials, targets) + gold - expected


def marginal_logits(potentials: Tensor, there: Tensor) -> Tensor:
    """The logarithms of the probabilities of each place's tags (rows, places, tags), in fp32.

    `there` (rows, places) tells which places hold a word. No gradient is taken.
    """
    rows, places, tags, _ = potentials.shape
    # the gradient of the log-sum over all sequences are the probabilities of steps; that of the
    # likelihood of tag 0 everywhere has these steps taken off
    firsts = torch.where(there, 0, NONE)
    steps: Tensor = _loss_and_gradient(potentials.detach().float(), firsts)[1]
    shares = steps.flatten(2)
    shares[..., 0] += there.to(shares.dtype)
    return shares.view(rows, places, tags, tags).sum(2).clamp(min=LEAST).log()


def crf_divergence(potentials: Tensor, targets: Tensor, there: Tensor) -> Tensor:
    """The Kullback-Leibler divergence of sequences from tags that are drawn word by word from the
    softmax of target logits, summed over rows.
    """
    firsts = torch.where(there, 0, NONE)
    logarithms = targets.float().log_softmax(-1)
    disorder = -(logarithms.exp() * logarithms).sum(-1).masked_fill(~there, 0.0).sum()
    return soft_negative_log_likelihood(potentials, targets, firsts) - disorder
