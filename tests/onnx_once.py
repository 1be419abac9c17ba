"""PyTorch's exporter, which writes the same model once for all tests of a process: each export
takes seconds, and the file follows from the model alone.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
from types import SimpleNamespace
from typing import Any

import torch


class _Contents(pickle.Pickler):
    """Tensors by what they hold; plain pickles of them have numbers of the process."""

    def reducer_override(self, value: Any) -> Any:
        """What stands for a value."""
        if isinstance(value, torch.Tensor):
            held = value.detach().cpu().reshape(-1).contiguous()
            kind = (type(value).__name__, str(value.dtype), tuple(value.shape))
            return tuple, ((*kind, held.view(torch.uint8).numpy().tobytes()),)
        return NotImplemented


def contents(*values: Any) -> str:
    """A hash of modules, tensors and plain values: equal for those that hold the same."""
    written = io.BytesIO()
    _Contents(written).dump(values)
    return hashlib.sha256(written.getvalue()).hexdigest()


def use_onnx_once() -> None:
    """Remembers what `torch.onnx.export` made of a model; those that ask get their own copy."""
    export: Any = torch.onnx.export
    made: dict[str, Any] = {}

    @functools.wraps(export)
    def exported(module: torch.nn.Module, *, kwargs: Any, **given: Any) -> Any:
        key = contents(module, kwargs, repr(sorted(given.items())))
        if key not in made:
            made[key] = export(module, kwargs=kwargs, **given).model_proto
        own = type(made[key])()
        own.CopyFrom(made[key])
        return SimpleNamespace(model_proto=own)

    torch.onnx.export = exported
