"""Tells images from text: folders of PNG and JPEG files, and NumPy archives of images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data
from tasklm.recipe.image import IMAGE
from tasklm.storage.safe_reading import home_path

SUFFIXES = (".png", ".jpg", ".jpeg")
ARCHIVE = ".npz"
LEFT_BEHIND = ("thumbs.db", "desktop.ini")  # by file managers
PEEK = 1000  # files that are looked at
NO_TEXT = "there is no text to select, tokenize or compare"
WORKS = (
    "For images there are tasklm fit, run, init, check, finetune, evaluate, report, predict, "
    "explain, export, serve and watch"
)


def is_image_task(data: Data) -> bool:
    """Whether labelled data is images: by data.kind, or by what train is."""
    if data.kind != "auto":
        return data.kind == IMAGE
    return bool(data.train) and holds_images(home_path(data.train))


def holds_images(path: Path) -> bool:
    """Whether a file is an image or an archive of arrays, or more than half of a folder's files are
    images.
    """
    if not path.is_dir():
        return path.suffix.lower() in (ARCHIVE, *SUFFIXES) and path.is_file()
    names = list(islice(file_names(path), PEEK))
    images = sum(name.lower().endswith(SUFFIXES) for name in names)
    return 2 * images > len(names)


def file_names(folder: Path) -> Iterator[str]:
    """Yields the names of the files in and below a folder, without hidden ones."""
    for _, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (name for name in sorted(files) if not is_left_behind(name))


def is_left_behind(name: str) -> bool:
    """Whether a file is hidden, or one that file managers write."""
    return name.startswith(".") or name.lower() in LEFT_BEHIND


def refuse_images(kind: str, what: str, reason: str = NO_TEXT) -> None:
    """Raises RecipeError where something for text is asked of images."""
    if kind == IMAGE:
        raise RecipeError([f"{what} is for text, and these are images: {reason}. {WORKS}"])
