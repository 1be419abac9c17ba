"""Files of weights (safetensors) from anywhere: inspected before anything is allocated; non-finite
numbers are refused.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from tasklm.storage.safe_reading import require_regular

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # of numbers that weights may be

Shapes = dict[str, tuple[int, ...]]


def shapes_in(path: Path) -> Shapes:
    """The shapes of a file's weights, which are not read; whole numbers, which some files
    hold beside them, are left out.

    Raises ValueError if they would not fit into the memory of this machine.
    """
    shapes, size = {}, 0
    with safe_open(require_regular(path), "pt") as file:
        for name in file.keys():  # noqa: SIM118  (it is no mapping)
            part = file.get_slice(name)
            if (each := BYTES.get(str(part.get_dtype()))) is not None:
                shapes[name] = tuple(part.get_shape())
                size += each * torch.Size(shapes[name]).numel()
    if size > memory():
        raise ValueError(
            f"{path.name} has {size / 2**30:.0f} GiB of weights, but this machine's memory is "
            f"{memory() / 2**30:.0f}"
        )
    return shapes


def memory() -> int:
    """The maximum bytes of memory of this process."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return physical
    return min(physical, limit)


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
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is unknown" for name in given if name not in wanted]
    return problems + [
        f"{name} has shape {given[name]}, not {shape}"
        for name, shape in wanted.items()
        if name in given and given[name] != shape
    ]
