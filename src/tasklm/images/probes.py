"""What the cells of the last feature map know: how active they are, and the accuracy of softmax
layers that read one cell each (figure 4.7 of the thesis).

The network stays as it is; the layers are trained from scratch on labelled images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasklm.device.machine import Machine
from tasklm.images.data_set import Pictures
from tasklm.images.network import CellModules, ImageNet

AT_ONCE = 500  # images
MOST_LEARNT = 10_000  # images that the layers are trained on
STEPS, RATE, DECAY = 300, 0.05, 1e-4
SEED = 7

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellReport:
    """Of each cell (side, side): its mean absolute activation, and the accuracy of its layer."""

    activation: Floats
    accuracy: Floats


def cell_report(model: ImageNet, train: Pictures, held: Pictures, machine: Machine) -> CellReport:
    """What the cells of a network know about held-out images."""
    some = np.unique(np.linspace(0, len(train) - 1, MOST_LEARNT).astype(np.int64))
    learnt, judged = _features(model, train.some(some)), _features(model, held)
    labels = torch.from_numpy(train.labels[some]).to(learnt.device)
    layers = _fitted(model, learnt, labels)
    with torch.no_grad():
        parts: Any = torch.split(judged, AT_ONCE)
        guesses = torch.cat([layers(part).argmax(-1) for part in parts])
    right = guesses == torch.from_numpy(held.labels).to(guesses.device)[:, None]
    side = model.shape.side
    activation = judged.abs().mean((0, 1)).double().cpu().numpy()
    accuracy = right.double().mean(0).cpu().numpy().reshape(side, side)
    return CellReport(activation, accuracy)


def _features(model: ImageNet, pictures: Pictures) -> Tensor:
    """The feature maps of images (images, width, side, side), in fp32."""
    device, parts = next(model.parameters()).device, []
    with torch.no_grad():
        for start in range(0, len(pictures), AT_ONCE):
            block = np.ascontiguousarray(pictures.pixels[start : start + AT_ONCE])
            scaled = model.scaled(torch.from_numpy(block).to(device))
            parts.append(model.features(scaled).float())
    return torch.cat(parts)


def _fitted(model: ImageNet, features: Tensor, labels: Tensor) -> CellModules:
    """A softmax layer for each cell, by Adam on all images at once, at a falling rate."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layers = CellModules(model.shape).to(features.device)
    scale = features.std().clamp(min=1e-6)
    optimiser = torch.optim.Adam(layers.parameters(), RATE / float(scale), weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    targets = labels[:, None].expand(-1, model.shape.cells).flatten()
    for _ in range(STEPS):
        optimiser.zero_grad()
        outputs = layers(features).flatten(0, 1)
        loss = functional.cross_entropy(outputs, targets) * model.shape.cells
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return layers
