"""Losses against what teachers say in place of labels (BAM, arXiv 1907.04829).

Cross-entropy against mixed targets, λ·label + (1 − λ)·teacher, is λ times the one against the label
plus 1 − λ times the one against the teacher; the gradient of a squared error likewise. So each kind
has a loss for either, and training weighs the two.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def soft_cross_entropy(outputs: Tensor, taught: Tensor, holds: Tensor) -> Tensor:
    """Cross-entropy (…, classes) against the softmax of the teachers' logits, summed.

    `holds` (…) is false where there is no example.
    """
    shares = taught.float().softmax(-1)
    losses = -(shares * outputs.float().log_softmax(-1)).sum(-1)
    return losses.masked_fill(~holds, 0.0).sum()


def soft_binary_cross_entropy(outputs: Tensor, taught: Tensor, holds: Tensor) -> Tensor:
    """Binary cross-entropy (…, labels) against the teachers' probabilities, summed."""
    losses = functional.binary_cross_entropy_with_logits(
        outputs.float(), taught.float().sigmoid(), reduction="none"
    ).sum(-1)
    return losses.masked_fill(~holds, 0.0).sum()


def soft_squared_error(outputs: Tensor, taught: Tensor, holds: Tensor) -> Tensor:
    """Squared errors (…) of scaled scores against those of the teachers, summed."""
    errors = (outputs.float().sigmoid() - taught.float().sigmoid()) ** 2
    return errors.masked_fill(~holds, 0.0).sum()


def divergence_of_classes(outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
    """The Kullback-Leibler divergence (…, classes) from the softmax of target logits, summed."""
    own, wanted = outputs.float().log_softmax(-1), targets.float().log_softmax(-1)
    losses = (wanted.exp() * (wanted - own)).sum(-1)
    return losses.masked_fill(~holds, 0.0).sum()


def divergence_of_labels(outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
    """The divergences of independent labels (…, labels) from target probabilities, summed."""
    outputs, targets = outputs.float(), targets.float()
    losses = 0.0 * outputs
    for sign in (1.0, -1.0):  # that a label is there, and that it is not
        own, wanted = functional.logsigmoid(sign * outputs), functional.logsigmoid(sign * targets)
        losses = losses + wanted.exp() * (wanted - own)
    return losses.sum(-1).masked_fill(~holds, 0.0).sum()
