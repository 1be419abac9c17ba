"""Optimisers: which parameters decay, and how fast they learn."""

from __future__ import annotations

import torch
from torch import nn


def adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Returns AdamW (β 0.9/0.98, ε 1e-6) that decays matrices only, never biases or norms."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=True)
