"""Whether the kernels of this folder can be used: they need a GPU, and Triton, which comes with
PyTorch for GPUs.
"""

from __future__ import annotations

import importlib.util

import torch

USABLE = importlib.util.find_spec("triton") is not None and torch.cuda.is_available()
