"""Files of weights (safetensors) from anywhere: inspected before anything is allocated; non-finite
numbers are refused.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tasklm.encoders.checkpoints.weight_shapes import Shapes, differences
from tasklm.storage.safe_reading import require_regular


def finite_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a file; raises ValueError if one of them is NaN or infinite."""
    tensors = {
        name: tensor
        for name, tensor in load_file(require_regular(path)).items()
        if tensor.is_floating_point()
    }
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} in {path.name} has numbers that are not finite")
    return tensors


def misfits(module: nn.Module, prefix: str, shapes: Shapes) -> list[str]:
    """How the tensors under a prefix differ from those of a module."""
    wanted = {prefix + name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    given = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
    return differences(wanted, given)
