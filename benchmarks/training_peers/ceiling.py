"""What the device can do at most: one large square matrix product, over and over."""

from __future__ import annotations

from typing import Any

import torch

from tasklm.device.machine import set_up
from tasklm.recipe.schema import Hardware
from tasklm.train.timing import matmul_ceiling

_BLOCKS = 7


def measure(device: torch.device, size: int, seconds: float) -> dict[str, Any]:
    """The TFLOP/s of the best of several blocks of products that together take about `seconds`."""
    machine = set_up(Hardware(device=str(device), threads=torch.get_num_threads()))
    best = matmul_ceiling(machine, size, seconds / _BLOCKS, _BLOCKS)
    kind = "bfloat16" if machine.bf16 else "float32"
    return {
        "tflops": best / 1e12,
        "version": f"torch {torch.__version__}",
        "settings": f"{size}³ product in {kind}, best of {_BLOCKS} blocks",
    }
