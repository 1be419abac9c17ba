"""A model of images as an ONNX file: bytes of pixels in, logits and those of each cell out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tasklm
from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import default_folder
from tasklm.export.model_sizes import MEGABYTE
from tasklm.export.onnx_graph import TOLERANCE, converted, library
from tasklm.export.source import new_folder
from tasklm.images.model import (
    CELLS,
    GRAPH,
    LOGITS,
    PIXELS,
    OnnxEngine,
    TorchEngine,
    described,
    load_network,
    read_config,
    seal_export,
)
from tasklm.images.network import ImageNet
from tasklm.run_folder import MODEL, is_run
from tasklm.storage.files import write_bytes, write_text

SEED, TRIED = 5, 7  # random images that both are compared on
TO = "onnx"


@dataclass(frozen=True)
class ExportedImages:
    """What was written, as in export.json."""

    to: str
    name: str
    tasklm: str  # version
    task: dict[str, Any]
    megabytes: float
    max_difference: float  # of logits to PyTorch's on random images
    weights: str = "fp32"
    loads_with: str = "onnxruntime"
    inputs: tuple[str, ...] = (PIXELS,)
    outputs: tuple[str, ...] = (LOGITS, CELLS)


class Graph(nn.Module):
    """The network as it is exported."""

    def __init__(self, model: ImageNet) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of bytes (images, size, size, 3), and those of each cell."""
        features = self.model.features(self.model.scaled(pixels))
        return self.model.logits(features), self.model.cell_logits(features)


def export_images(where: Path, to: str, out: Path | None = None) -> tuple[ExportedImages, Path]:
    """Writes the model of a run or folder as ONNX; returns what, and where."""
    if to != TO:
        reason = "transformers has no class for the network" if to == "hf" else "weights stay fp32"
        raise RecipeError([f"--to {to}: {reason}; a model of images is exported with --to {TO}"])
    folder = where / MODEL if is_run(where) else where
    target = out or default_folder(where, to)
    with new_folder(target) as inside:
        exported = write_onnx(folder, inside)
        write_text(inside / "README.md", _card(exported, folder))
    return exported, target


def write_onnx(model_folder: Path, folder: Path) -> ExportedImages:
    """Writes model.onnx and what describes it; raises RunError if it does not match PyTorch."""
    model, config = load_network(model_folder), read_config(model_folder)
    write_bytes(folder / GRAPH, _graph_of(model))
    apart = _difference(model, folder / GRAPH)
    name = model_folder.resolve()
    exported = ExportedImages(
        to=TO,
        name=name.parent.name if name.name == MODEL else name.name,
        tasklm=tasklm.__version__,
        task=config["task"],
        megabytes=(folder / GRAPH).stat().st_size / MEGABYTE,
        max_difference=apart,
    )
    task = config["task"]
    config = described(config["shape"], task["labels"], config["about"])
    seal_export(folder, config, {**vars(exported), "inputs": [PIXELS], "outputs": [LOGITS, CELLS]})
    return exported


def _graph_of(model: ImageNet) -> bytes:
    size = model.shape.size
    given = {PIXELS: torch.zeros(3, size, size, 3, dtype=torch.uint8)}
    free = {PIXELS: {0: torch.export.Dim("batch")}}
    graph = converted(Graph(model), given, free, [LOGITS, CELLS])
    facts = {"size": str(size), "shape": json.dumps(model.shape.to_dict())}
    library("onnx").helper.set_model_props(graph, facts)
    content: bytes = graph.SerializeToString()
    return content


def _difference(model: ImageNet, path: Path) -> float:
    """The largest difference from PyTorch's outputs on random images."""
    size = model.shape.size
    draw = np.random.default_rng(SEED)
    pixels = draw.integers(0, 256, (TRIED, size, size, 3), dtype=np.uint8)
    ours, theirs = TorchEngine(model).outputs(pixels), OnnxEngine(path, 1).outputs(pixels)
    pairs = [(ours.logits, theirs.logits), (ours.cells, theirs.cells)]
    worst = max(float(np.abs(one - other).max()) for one, other in pairs)
    largest = max(1.0, *(float(np.abs(one).max()) for one, _ in pairs))
    if not worst <= TOLERANCE * largest:
        problem = (
            f"the exported model does not match the trained one: outputs differ by {worst:.3g}"
        )
        raise RunError(f"{problem}. Try other versions of torch and onnxruntime.")
    return worst


def _card(exported: ExportedImages, folder: Path) -> str:
    """A short model card, there to be edited."""
    config = read_config(folder)
    labels = ", ".join(exported.task["labels"])
    size, test = config["shape"]["size"], config["about"].get("test")
    score = f"{config['about'].get('metric')} on test: {100 * test['mean']:.1f}." if test else ""
    return f"""---
license: other
tags: [image-classification, tasklm]
---

# {exported.name}

A convolutional network that tells {labels}. {score}

`model.onnx` takes `pixels` (images, {size}, {size}, 3), whole numbers from 0 to 255, of the whole
image resized to {size} × {size}. It returns `logits` (images, classes), whose softmax gives the
probabilities in the order above, and `cells`, the logits of each part of the image, whose mean
they are. Please fill in the licence.
"""
