"""Networks that NumPy computes: their first answers are there before PyTorch is imported.

For a few texts. For many, PyTorch (`networks.py`) is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import safe_open

from tasklm.encoders.checkpoints.weight_shapes import differences, shapes_in
from tasklm.models.answering import Loaded, for_one_task, kept_by, require_width
from tasklm.models.linear_model import SCALE
from tasklm.models.numpy_encoders import ON_NUMPY, Floats, Weights, gelu
from tasklm.models.saved_model import SavedModel
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide_parts import load_wide
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.rows import Rows

EPSILON = 1e-5  # of a head's LayerNorm
HEAD = "head."


@dataclass(frozen=True)
class NumpyNetworks:
    """One network or several, whose outputs are averaged."""

    loaded: Loaded
    saved: SavedModel
    networks: Sequence[dict[str, Floats]]  # the tensors of each by name
    device: ClassVar[str] = "cpu"

    def predictions(self, examples: EncodedExamples) -> list[Any]:
        """What the task keeps of the outputs of each unit."""
        return kept_by(self.outputs, self.loaded.task, examples)

    def predictions_of_all(self, examples: EncodedExamples, inputs: Sequence[int]) -> list[Any]:
        """The same: there is one task."""
        return self.predictions(examples)

    def with_task(self, task: Task) -> NumpyNetworks:
        """The same with a task that differs in how answers are searched for."""
        return replace(self, loaded=replace(self.loaded, task=task))

    def alone(self, name: str) -> NumpyNetworks:
        """Raises RecipeError, with the way out: there is one task."""
        return replace(self, loaded=for_one_task(self.loaded, name))

    def outputs(self, rows: Rows) -> Floats:
        """The outputs (rows, places, …) of padded rows."""
        with np.errstate(all="ignore"):  # outputs that are not finite are refused
            each = [self._outputs_of(tensors, rows) for tensors in self.networks]
        mean: Floats = np.mean(each, 0, dtype=np.float32)
        return mean

    def _outputs_of(self, tensors: dict[str, Floats], rows: Rows) -> Floats:
        """The outputs (rows, places, …) of a network and its wide part."""
        saved, head = self.saved, Weights(tensors, HEAD)
        encoder = ON_NUMPY[saved.encoder]
        states = encoder.states(Weights(tensors, "encoder."), saved.shape, rows)
        if (dense := head.get("dense.weight")) is not None:
            together = states.reshape(len(states), -1, dense.shape[1])
            states = head.norm("norm", gelu(head.linear("dense", together)), EPSILON)
        outputs = head.linear("out", states)
        if self.loaded.wide is None:
            return outputs
        assert rows.wide is not None
        return outputs + tensors[SCALE] * rows.wide


def open_numpy(saved: SavedModel) -> NumpyNetworks | None:
    """The networks of a folder; None where it takes PyTorch to answer."""
    with saved.damage_is_clear():
        task = saved.task()
        if saved.encoder not in ON_NUMPY or task.elsewhere is None or not task.wide_width:
            return None
        wide = load_wide(saved.folder)
        networks = []
        for path in saved.weights:
            shapes = shapes_in(path)
            wanted = _shapes(saved, task, f"{HEAD}norm.weight" in shapes, wide is not None)
            if problems := differences(wanted, shapes):
                raise ValueError(f"{path.name}: {problems[0]}")
            if (tensors := _tensors(path)) is None:
                return None
            networks.append(tensors)
        require_width(wide, task)
    return NumpyNetworks(Loaded(task, saved.vocabulary, saved.config, wide), saved, networks)


def _shapes(saved: SavedModel, task: Task, normed: bool, wide: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, by their names."""
    width, outputs = saved.shape.width, task.wide_width
    assert task.elsewhere is not None
    shapes = {"out.weight": (outputs, width), "out.bias": (outputs,)}
    if normed or not task.elsewhere.of_words:
        inputs = width * (1 + len(task.elsewhere.marks))
        shapes |= {"dense.weight": (width, inputs), "dense.bias": (width,)}
    if normed:
        shapes["norm.weight"] = (width,)
    own = {f"{HEAD}{name}": size for name, size in shapes.items()}
    encoder = ON_NUMPY[saved.encoder].shapes(saved.shape)
    own |= {f"encoder.{name}": size for name, size in encoder.items()}
    return own | {SCALE: ()} if wide else own


def _tensors(path: Path) -> dict[str, Floats] | None:
    """The weights of a file, None where they are not in 32 bits; raises ValueError if one is NaN or
    infinite.
    """
    tensors = {}
    with safe_open(require_regular(path), "np") as file:
        for name in file.keys():  # noqa: SIM118  (it is no mapping)
            if str(file.get_slice(name).get_dtype()) != "F32":
                return None
            tensors[name] = file.get_tensor(name)
            if not np.isfinite(tensors[name]).all():
                raise ValueError(f"{name} in {path.name} has numbers that are not finite")
    return tensors
