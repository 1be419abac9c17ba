"""Whether the kernels of this folder can be used: there must be a GPU, and Triton, which PyTorch
for GPUs brings.
"""

from __future__ import annotations

import importlib.util

import torch

USABLE = importlib.util.find_spec("triton") is not None and torch.cuda.is_available()
