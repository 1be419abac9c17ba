"""NumPy archives (.npz) of images: arrays of pixels, or of the bytes of JPEG and PNG files.

Of each split (train, dev or valid, test) there are `train_images` (or `x_train`) with pixels, or
`train_jpeg` with the bytes of all files one after another and `train_offsets` with where each
begins and the last one ends; and `train_labels` (or `y_train`). `classes` names the numbers of
labels; `labelled_…` (sets, images) lists training images whose labels may be used.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError
from tasklm.images.decoding import MOST_PIXELS, Encoded, pillow
from tasklm.images.listing import Listed, Listing

NAMES = {"train": ("train",), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
NAMES["unlabelled"] = ("unlabelled", "unlabeled")
ALLOWED = "Arrays are train_images and train_labels, or train_jpeg, train_offsets and train_labels"
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Array = NDArray[Any]


def read_archive(path: Path) -> Listing:
    """The images of an archive, not decoded yet."""
    arrays = _arrays(path)
    classes = [str(name) for name in arrays.get("classes", np.zeros(0, str)).ravel()]
    splits = {}
    for split, names in NAMES.items():
        for name in names:
            images = _images_of(arrays, name, path)
            if images is None:
                continue
            labels = [""] * len(images)
            if split != "unlabelled":
                labels = _labels_of(arrays, name, classes, len(images), path)
            splits[split] = Listed(images, labels)
    if "train" not in splits:
        listed = ", ".join(sorted(arrays)) or "none"
        raise DataError(
            f"no images of train; its arrays: {listed}", file=path, remedy=f"{ALLOWED}."
        )
    labelled = {}
    for name in sorted(arrays):
        if name.startswith("labelled_"):
            labelled[name] = _sets(arrays[name], name, len(splits["train"].images), path)
    return Listing(splits, labelled)


def _arrays(path: Path) -> dict[str, Array]:
    remedy = "Write it again with numpy.savez, without objects."
    if not zipfile.is_zipfile(path):
        raise DataError("it is not an archive of NumPy arrays", file=path, remedy=remedy)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        reason = "it has objects, not numbers" if "ickle" in str(error) else str(error)
        problem = f"the archive cannot be read ({reason.partition(chr(10))[0]})"
        raise DataError(problem, file=path, remedy=remedy) from None


def _images_of(arrays: dict[str, Array], name: str, path: Path) -> list[Encoded] | None:
    """The images of a split, or None where it has none."""
    if f"{name}_jpeg" in arrays:
        return _files_of(arrays, name, path)
    for key in (f"{name}_images", f"x_{name}", name):
        if key in arrays:
            return _pictures_of(arrays[key], key, path)
    return None


def _files_of(arrays: dict[str, Array], name: str, path: Path) -> list[Encoded]:
    content, ends = arrays[f"{name}_jpeg"], arrays.get(f"{name}_offsets")
    flat = content.dtype == np.uint8 and content.ndim == 1
    if ends is None or not flat or ends.ndim != 1 or ends.dtype.kind not in "iu":
        problem = f"{name}_jpeg needs to be bytes, with {name}_offsets"
        raise DataError(problem, file=path, remedy=f"{ALLOWED}.")
    ends = ends.astype(np.int64)
    if len(ends) < 2 or (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(content):
        problem = f"{name}_offsets does not fit the {len(content):,} bytes of {name}_jpeg"
        raise DataError(problem, file=path, remedy="Write the archive again.")

    def reader(begin: int, end: int) -> Callable[[], bytes]:
        return lambda: content[begin:end].tobytes()

    return [
        Encoded(f"{path}: {name} image {number}", reader(int(begin), int(end)))
        for number, (begin, end) in enumerate(pairwise(ends))
    ]


def _pictures_of(images: Array, key: str, path: Path) -> list[Encoded]:
    """Arrays of pixels as images."""
    plain = plain_pixels(images, f"{path}: {key}")

    def reader(number: int) -> Callable[[], bytes]:
        return lambda: as_png(plain[number])

    return [Encoded(f"{path}: {key}[{number}]", reader(number)) for number in range(len(plain))]


def plain_pixels(images: Array, name: str) -> NDArray[np.uint8]:
    """Pixels as bytes: (images, height, width) of grey ones, or with 3 or 4 colours."""
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] not in (1, 3, 4):
        images = images.transpose(0, 2, 3, 1)
    fits = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3, 4))
    if not fits or not len(images) or 0 in images.shape:
        problem = f"its shape is {images.shape}, not (images, height, width, colours)"
        raise DataError(problem, file=name, remedy="Give grey images, or 3 or 4 colours.")
    if images.shape[1] * images.shape[2] > MOST_PIXELS:
        problem = f"images have more than {MOST_PIXELS:,} pixels"
        raise DataError(problem, file=name, remedy="Save them smaller.")
    if images.dtype.kind == "f":
        if not np.isfinite(images).all() or images.min() < 0 or images.max() > 1:
            problem = "there are fractions that are not between 0 and 1"
            raise DataError(problem, file=name, remedy="Give whole numbers from 0 to 255.")
        images = np.round(images * 255)
    elif images.dtype.kind not in "iub" or images.min() < 0 or images.max() > 255:
        problem = "there are values that are not whole numbers from 0 to 255"
        raise DataError(problem, file=name, remedy="Scale them, or give fractions from 0 to 1.")
    plain: NDArray[np.uint8] = images.astype(np.uint8)
    return plain[..., 0] if plain.ndim == 4 and plain.shape[3] == 1 else plain


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    """An array as a file, so that all images are decoded alike."""
    buffer = BytesIO()
    pillow().fromarray(pixels).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def _labels_of(
    arrays: dict[str, Array], name: str, classes: list[str], count: int, path: Path
) -> list[str]:
    for key in (f"{name}_labels", f"y_{name}"):
        if key in arrays:
            labels = arrays[key].ravel()
            break
    else:
        raise DataError(f"{name} has no labels", file=path, remedy=f"{ALLOWED}.")
    if len(labels) != count:
        problem = f"{key} has {len(labels):,} labels for {count:,} images"
        raise DataError(problem, file=path, remedy="Write the archive again.")
    if not classes or labels.dtype.kind not in "iu":
        return [str(label) for label in labels.tolist()]
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= len(classes):
        problem = f"{key} has numbers beyond the {len(classes)} classes"
        raise DataError(problem, file=path, remedy="Name all classes, or leave classes out.")
    return [classes[number] for number in labels.tolist()]


def _sets(numbers: Array, name: str, count: int, path: Path) -> NDArray[np.int64]:
    sets = np.atleast_2d(numbers)
    whole = sets.ndim == 2 and sets.dtype.kind in "iu" and sets.size > 0
    if not whole or sets.min() < 0 or sets.max() >= count:
        problem = f"{name} is not (sets, images) of numbers of training images"
        raise DataError(problem, file=path, remedy="Write the archive again.")
    return sets.astype(np.int64)
