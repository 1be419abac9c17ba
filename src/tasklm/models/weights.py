"""Tensors by name as a safetensors file."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import full_disk_is_clear, publish, sync, temporary_name


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors to one safetensors file, atomically and for good."""
    temporary = temporary_name(path)
    with full_disk_is_clear(path):
        try:
            save_file(
                {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
                temporary,
            )
            sync(temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        publish(temporary, path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    with damage_is_clear(path):
        return load_file(path)
