"""How pixels are scaled before a network reads them, fitted to the training images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasklm.recipe.image import WHITENINGS

CHANNELS, ZCA = WHITENINGS
# share of the mean variance that is added to each: the directions that a file format has rounded
# away would otherwise be noise as loud as the rest
FLOOR = 0.01
AT_ONCE = 4096  # images
LEAST = 1e-3  # spread of a colour, of a scale from 0 to 1


def fitted(
    pixels: NDArray[np.uint8], whiten: str, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and the scale of images (images, size, size, 3): of each colour, or (zca) the mean
    image and a symmetric matrix.
    """
    device = device or torch.device("cpu")
    if whiten == CHANNELS:
        return _colours(pixels)
    total, products = torch.zeros(()), torch.zeros(())
    for block in _blocks(pixels, device):
        total = total.to(device) + block.sum(0)
        products = products.to(device) + block.T @ block
    mean = total / len(pixels)
    covariance = products / len(pixels) - torch.outer(mean, mean)
    variances, directions = torch.linalg.eigh(covariance)
    variances = variances.clamp(min=0.0)
    floor = FLOOR * variances.mean().clamp(min=LEAST**2)
    matrix = (directions * (variances + floor).rsqrt()) @ directions.T
    return mean.float().cpu(), matrix.float().cpu().contiguous()


def _colours(pixels: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """The mean of each colour, and 1 / its spread, from counts of whole numbers."""
    levels = np.arange(256) / 255.0
    means, scales = [], []
    for colour in range(3):
        counts = np.bincount(pixels[..., colour].ravel(), minlength=256)
        mean = (counts * levels).sum() / counts.sum()
        variance = (counts * (levels - mean) ** 2).sum() / counts.sum()
        means.append(mean)
        scales.append(1.0 / max(float(np.sqrt(variance)), LEAST))
    return torch.tensor(means).float(), torch.tensor(scales).float()


def _blocks(pixels: NDArray[np.uint8], device: torch.device) -> Iterator[Tensor]:
    """Yields images as rows of numbers from 0 to 1, in double precision."""
    for start in range(0, len(pixels), AT_ONCE):
        part = torch.from_numpy(np.ascontiguousarray(pixels[start : start + AT_ONCE]))
        yield part.to(device).double().reshape(len(part), -1) / 255.0
