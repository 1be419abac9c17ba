"""Checkpoints: weights, optimiser and position, written under a temporary name and renamed; nothing is pickled.

No state of random generators is needed: every draw of a step comes from a generator seeded by (seed, step).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from tasklm.runs import full_disk_is_clear, read_json, write_json


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

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        """Writes a checkpoint for having done `step` steps, one file per group of tensors, and drops the oldest above `keep`."""
        temporary, final = self.folder / "checkpoint.tmp", self.folder / f"checkpoint-{step:09d}"
        with full_disk_is_clear(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for name, group in tensors.items():
                save_weights(temporary / f"{name}.safetensors", group)
            write_json(temporary / "state.json", state)
            shutil.rmtree(final, ignore_errors=True)
            temporary.replace(final)
        for old in self._all()[: -self.keep]:
            shutil.rmtree(old)

    def last(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]] | None:
        """Returns the groups of tensors and the state of the last checkpoint, or None when there is none."""
        found = self._all()
        if not found:
            return None
        tensors = {path.stem: load_weights(path) for path in found[-1].glob("*.safetensors")}
        return tensors, read_json(found[-1] / "state.json")

    @property
    def there(self) -> bool:
        """Returns whether there is any."""
        return bool(self._all())

    def clear(self) -> None:
        """Deletes all checkpoints, when the training they belong to is complete."""
        for old in self._all():
            shutil.rmtree(old)

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))
