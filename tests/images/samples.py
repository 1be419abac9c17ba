"""Images that tests make: coloured shapes on noise."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasklm.recipe.schema import Recipe, from_dict

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 40, 40)}
SIZE = 16


def shape_of(label: str, rng: np.random.Generator, size: int = SIZE) -> NDArray[np.uint8]:
    """A square of a colour, somewhere on noise."""
    pixels = rng.integers(60, 200, (size, size, 3))
    top, left = rng.integers(0, size // 2, 2)
    half = size // 2
    pixels[top : top + half, left : left + half] = COLOURS[label]
    return pixels.astype(np.uint8)


def arrays(count: int, seed: int = 0, size: int = SIZE) -> tuple[Any, Any]:
    """Images of all labels in turn, and their labels."""
    rng = np.random.default_rng(seed)
    labels = [list(COLOURS)[number % len(COLOURS)] for number in range(count)]
    return np.stack([shape_of(label, rng, size) for label in labels]), np.array(labels)


def png(pixels: NDArray[Any], kind: str = "PNG") -> bytes:
    """An array as the bytes of a file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def write_folder(folder: Path, each: int = 8, seed: int = 0) -> Path:
    """A folder per label with PNG files, some JPEG."""
    pixels, labels = arrays(each * len(COLOURS), seed)
    for number, (one, label) in enumerate(zip(pixels, labels, strict=True)):
        kind = ("PNG", "JPEG")[number % 4 == 3]
        file = folder / str(label) / f"{number:03d}.{kind[:3].lower().replace('jpe', 'jpg')}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(one, kind))
    return folder


def write_archive(path: Path, train: int = 60, test: int = 30) -> Path:
    """An archive with splits and their labels."""
    images, labels = arrays(train)
    others, other_labels = arrays(test, 1)
    np.savez(
        path, train_images=images, train_labels=labels, test_images=others, test_labels=other_labels
    )
    return path


def small_recipe(train: Path, **sections: dict[str, Any]) -> Recipe:
    """A recipe that trains within seconds on a CPU."""
    values: dict[str, Any] = {
        "data": {"train": str(train)},
        "image": {"width": 4, "steps": 8, "dropout": 0.1},
        "finetune": {"batch": 8},
        "evaluate": {"bootstrap": 100, "baselines": False},
        "hardware": {"device": "cpu", "threads": 1},
    }
    for name, own in sections.items():
        values[name] = {**values.get(name, {}), **own}
    return from_dict(values)
