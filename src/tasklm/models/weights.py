"""Tensors by name as a safetensors file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import full_disk_is_clear, publish, sync, temporary_name


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors to one safetensors file, atomically and for good."""
    temporary = temporary_name(path)
    with full_disk_is_clear(path):
        try:
            save_file(
                {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
                temporary,
            )
            sync(temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        publish(temporary, path)


def mean_weights(several: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The means of the tensors of several models of one shape; what is not a number in all of them
    is that of the first.
    """
    first = several[0]
    if len(several) == 1:
        return first
    mean = dict(first)
    for name, tensor in first.items():
        if tensor.is_floating_point():
            every = torch.stack([weights[name].double() for weights in several])
            mean[name] = every.mean(0).to(tensor.dtype)
    return mean


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    with damage_is_clear(path):
        return load_file(path)
