"""Losses against labels, in fp32 and summed; what has no label, NONE, adds nothing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tasklm.tasks.base import NONE


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy (…, classes) against the numbers of the right classes (…)."""
    return functional.cross_entropy(
        outputs.float().flatten(0, -2), targets.flatten(), reduction="sum", ignore_index=NONE
    )


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy (…, labels) against 0 and 1."""
    padding = targets == NONE
    wanted = targets.masked_fill(padding, 0).float()
    errors = functional.binary_cross_entropy_with_logits(outputs.float(), wanted, reduction="none")
    return errors.masked_fill(padding, 0.0).sum()


def option_scores(outputs: Tensor, targets: Tensor, together: int) -> Tensor:
    """The scores (examples, options), very low where an example has fewer options than others.

    Targets are (the right option, the number of options), a row for each option.
    """
    scores = outputs.float().reshape(-1, together)
    options = targets.reshape(-1, together, 2)[:, 0, 1]
    missing = torch.arange(together, device=scores.device) >= options.unsqueeze(-1)
    # not minus infinity: a group of padding, which has no option at all, would give NaN
    # gradients
    return scores.masked_fill(missing, torch.finfo(scores.dtype).min)
