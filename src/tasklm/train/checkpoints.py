"""Checkpoints: weights, optimiser and position, written under a temporary name and renamed; nothing is pickled.

No state of random generators is needed: every draw of a step comes from a generator seeded by (seed, step).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasklm.runs import full_disk_is_clear, read_json, write_json

KEEP = 2


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors to one safetensors file, atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with full_disk_is_clear(path):
        try:
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary)
        except Exception as error:  # the library wraps the system's error in its own
            temporary.unlink(missing_ok=True)
            if "No space left" in str(error) or "os error 28" in str(error):
                raise OSError(28, "No space left on device") from error
            raise
        temporary.replace(path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file."""
    return load_file(path)


class Checkpoints:
    """The last checkpoints of one training, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Writes a checkpoint for having done `step` steps, and drops those before the last two."""
        temporary, final = self.folder / "checkpoint.tmp", self.folder / f"checkpoint-{step:09d}"
        with full_disk_is_clear(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            save_weights(temporary / "model.safetensors", model.state_dict())
            save_weights(temporary / "optimiser.safetensors", _optimiser_tensors(optimiser))
            write_json(temporary / "state.json", {**state, "step": step})
            shutil.rmtree(final, ignore_errors=True)
            temporary.replace(final)
        for old in self._all()[:-KEEP]:
            shutil.rmtree(old)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Loads the last checkpoint and returns its state, or returns None when there is none."""
        found = self._all()
        if not found:
            return None
        model.load_state_dict(load_weights(found[-1] / "model.safetensors"))
        _load_optimiser(optimiser, load_weights(found[-1] / "optimiser.safetensors"))
        state: dict[str, Any] = read_json(found[-1] / "state.json")
        return state

    def clear(self) -> None:
        """Deletes all checkpoints, when the training they belong to is complete."""
        for old in self._all():
            shutil.rmtree(old)

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"{number}.{name}": torch.as_tensor(value) for number, values in state.items() for name, value in values.items()}


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, part = name.partition(".")
        state.setdefault(int(number), {})[part] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
