"""The description of an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exported:
    """What was written, as in export.json."""

    to: str
    name: str
    tasklm: str  # version
    task: dict[str, Any]
    encoder: str
    length: int
    weights: str  # which have 8 bits: a step of `sizes.STEPS`
    megabytes: float  # of the file with the weights
    loads_with: str  # class of transformers, or onnxruntime
    inputs: list[str]
    # keys of `recipe.Data` that name the columns of rows, as far as the recipe sets them
    columns: dict[str, str]
    columns_by_task: dict[str, dict[str, str]]  # the same of each of several tasks
    outputs: list[str]  # names of an ONNX file's outputs; those of several tasks are their names
    # of logits to PyTorch's on random rows; None where nothing is computed on export
    max_difference: float | None = None
    # scale of the wide part, a linear model of words beside the network, where the model has one
    wide: float | None = None
    # where there are several tasks, both of these scores are means and have those of each task
    # scores of the model and of its network alone, where it has a wide part and a run is there
    network: dict[str, Any] | None = None
    # scores of the model and of the exported one, where weights have 8 bits and a run is there
    dev: dict[str, Any] | None = None
