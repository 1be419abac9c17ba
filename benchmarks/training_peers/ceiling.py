"""What the device can do at most: one large square matrix product, over and over."""

from __future__ import annotations

import time
from typing import Any

import torch

from training_peers.timing import computes_in_bf16, wait_for

_BLOCKS = 7


def measure(device: torch.device, size: int, seconds: float) -> dict[str, Any]:
    """Returns the TFLOP/s of the best of several blocks of products that together take about `seconds`."""
    dtype = torch.bfloat16 if computes_in_bf16(device) else torch.float32
    torch.manual_seed(1)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    _block(left, right, out, 3)
    products = max(1, int(seconds / _BLOCKS / _block(left, right, out, 3) * 3))
    best = min(_block(left, right, out, products) for _ in range(_BLOCKS)) / products
    return {
        "tflops": 2 * size**3 / best / 1e12,
        "version": f"torch {torch.__version__}",
        "settings": f"{size}³ product in {str(dtype).removeprefix('torch.')}, best of {_BLOCKS} blocks of {products}",
    }


def _block(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, products: int) -> float:
    """Returns the seconds of so many products."""
    wait_for(left.device)
    begun = time.perf_counter()
    for _ in range(products):
        torch.mm(left, right, out=out)
    wait_for(left.device)
    return time.perf_counter() - begun
