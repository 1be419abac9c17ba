"""State of training as tensors with names, so that a checkpoint does not depend on any order."""

from __future__ import annotations

import torch
from torch import Tensor

from tasklm.errors import RunError


def fill(held: dict[str, Tensor], given: dict[str, Tensor], what: str) -> None:
    """Copies the given tensors into existing ones; raises RunError if one does not match."""
    problems = [f"{name} is missing" for name in held if name not in given]
    problems += [f"{name} is unknown" for name in given if name not in held]
    problems += [
        f"{name} has shape {tuple(given[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in held.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise RunError(
            f"the checkpoint does not match {what}: {problems[0]}{more}. It was written with "
            "another model or optimiser: use the recipe it was written with, or delete the "
            "stage's folder to train from the start."
        )
    with torch.no_grad():
        for name, tensor in held.items():
            tensor.copy_(given[name])
