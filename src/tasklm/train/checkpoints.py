"""Checkpoints: weights, optimiser and position, written under a temporary name and renamed.

A checkpoint lists its files with their checksums and is synced to disk before it gets its name.
There are always two: if the last one is damaged, training continues from the one before. Nothing is
pickled, and no state of random generators is needed: every draw of a step comes from a generator
seeded by (seed, step).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tasklm.errors import DamagedError
from tasklm.models.weights import load_weights, save_weights
from tasklm.storage.checksums import files_in, problems_of, seal, sums_in
from tasklm.storage.files import (
    full_disk_is_clear,
    link_or_copy,
    publish,
    read_json,
    remove,
    sync,
    temporary_name,
)

STATE = "state.json"
LEAST = 2  # checkpoints that are kept, so that there is one to fall back to


@dataclass(frozen=True)
class Checkpoint:
    """The state that a training continues from."""

    folder: Path
    tensors: dict[str, dict[str, Tensor]]  # by group
    state: dict[str, Any]


class Checkpoints:
    """The last checkpoints of one training, in one folder.

    `beside` names files in that folder that belong to the state of the training too: each
    checkpoint holds those of its own moment, as further names of the same content.
    """

    def __init__(self, folder: Path, keep: int = LEAST, beside: tuple[str, ...] = ()) -> None:
        self.folder, self.keep, self.beside = folder, max(LEAST, keep), beside

    def save(self, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        """Writes a checkpoint after `step` steps, a file per group, and drops the oldest ones."""
        temporary, final = self._temporary, self.folder / f"checkpoint-{step:09d}"
        with full_disk_is_clear(temporary):
            remove(temporary)
            temporary.mkdir(parents=True)
            for name, group in tensors.items():
                save_weights(temporary / f"{name}.safetensors", group)
            for name in self.beside:
                if (self.folder / name).exists():
                    (temporary / "beside").mkdir(exist_ok=True)
                    link_or_copy(self.folder / name, temporary / "beside" / name)
            seal(temporary / STATE, state, files_in(temporary))
            remove(final)
            publish(temporary, final)
        for old in self._all()[: -self.keep]:
            shutil.rmtree(old)

    def last(self) -> Checkpoint | None:
        """The last intact checkpoint, or None."""
        for folder in reversed(self._all()):
            if _is_whole(folder):
                tensors = {path.stem: load_weights(path) for path in folder.glob("*.safetensors")}
                state = dict(read_json(folder / STATE))
                state.pop("files", None)
                return Checkpoint(folder, tensors, state)
        return None

    def put_back(self, checkpoint: Checkpoint) -> None:
        """Restores the files `beside` to those of a checkpoint; later content is removed."""
        if sums_in(checkpoint.folder / STATE) is None:
            return  # of an earlier version, which held none
        for name in self.beside:
            path = self.folder / name
            temporary = temporary_name(path)
            remove(temporary)
            if (checkpoint.folder / "beside" / name).exists():
                link_or_copy(checkpoint.folder / "beside" / name, temporary)
                sync(temporary)
                publish(temporary, path)
            else:
                remove(path)

    def drop_damaged(self) -> list[str]:
        """Deletes the checkpoints that are damaged; returns their names."""
        dropped = [folder for folder in self._all() if not _is_whole(folder)]
        for folder in dropped:
            remove(folder)
        return [folder.name for folder in dropped]

    @property
    def there(self) -> bool:
        """Whether there is any."""
        return bool(self._all())

    def clear(self) -> None:
        """Deletes all checkpoints, when the training they belong to is complete."""
        for old in (*self._all(), self._temporary):
            remove(old)

    @property
    def _temporary(self) -> Path:
        return self.folder / "checkpoint.tmp"

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))


def _is_whole(folder: Path) -> bool:
    """Whether a checkpoint is intact; one of an earlier version must be readable."""
    try:
        listed = sums_in(folder / STATE)
        if listed is None:
            for path in folder.glob("*.safetensors"):
                load_weights(path)
        return not problems_of(folder, listed or {})
    except DamagedError:
        return False
