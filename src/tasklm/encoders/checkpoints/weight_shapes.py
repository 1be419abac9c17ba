"""The shapes of the weights in a safetensors file, read without the weights and without PyTorch."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open

from tasklm.storage.safe_reading import require_regular

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # of numbers that weights may be

Shapes = dict[str, tuple[int, ...]]


def shapes_in(path: Path) -> Shapes:
    """The shapes of a file's weights, which are not read; whole numbers, which some files
    hold beside them, are left out.

    Raises ValueError if they would not fit into the memory of this machine.
    """
    shapes, size = {}, 0
    with safe_open(require_regular(path), "np") as file:
        for name in file.keys():  # noqa: SIM118  (it is no mapping)
            part = file.get_slice(name)
            if (each := BYTES.get(str(part.get_dtype()))) is not None:
                shapes[name] = tuple(part.get_shape())
                size += each * math.prod(shapes[name])
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


def differences(
    wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """How the shapes of given weights differ from those that are wanted."""
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is unknown" for name in given if name not in wanted]
    return problems + [
        f"{name} has shape {given[name]}, not {shape}"
        for name, shape in wanted.items()
        if name in given and given[name] != shape
    ]
