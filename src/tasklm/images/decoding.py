"""Image files as pixels: PNG and JPEG, of any size and mode, as RGB squares of one size.

Files may come from anywhere: only these two formats are opened, and the size that a file claims to
have is looked at before it is unpacked.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError, RunError
from tasklm.storage.safe_reading import read_bytes

FORMATS = ("PNG", "JPEG")
BEGINNINGS = (b"\x89PNG", b"\xff\xd8")  # of such files
SUFFIXES = (".png", ".jpg", ".jpeg")
MOST_PIXELS = 64_000_000  # of an image, before it is resized
USUAL_BYTES = 16 << 20  # of a file, at most
AT_ONCE = 256  # images that a thread decodes before it reports
REPLACE = "Replace the file or delete it"

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Encoded:
    """An image that is not decoded yet: its name for messages, and where its bytes are."""

    name: str
    read: Callable[[], bytes]

    @classmethod
    def of_file(cls, path: Path, most: int = USUAL_BYTES) -> Encoded:
        """An image file."""

        def read() -> bytes:
            try:
                return read_bytes(path, most)
            except FileNotFoundError:
                remedy = "Give the path of a PNG or JPEG file"
                raise DataError("there is no such file", file=path, remedy=f"{remedy}.") from None
            except OSError as error:
                raise DataError(
                    f"it cannot be read ({error.strerror})",
                    file=path,
                    remedy=f"{REPLACE}; image.most_bytes is the limit.",
                ) from None

        return cls(str(path), read)


def pillow() -> Any:
    """The decoder; raises RunError, with the remedy, where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        problem = f"images need the package Pillow ({error})"
        raise RunError(f"{problem}. Install it: pip install pillow") from None
    return Image


def decoded(content: bytes, name: str, size: int) -> Pixels:
    """An image as (size, size, 3): the whole of it, without keeping the ratio of its sides.

    Raises DataError, which names it, for what is not a whole PNG or JPEG image.
    """
    return np.asarray(_opened(content, name, size), np.uint8)


def side_lengths(content: bytes, name: str) -> tuple[int, int]:
    """Width and height, as the header of an image says."""
    width, height = _header(content, name).size
    return int(width), int(height)


def decode_all(
    images: Sequence[Encoded], size: int, advance: Callable[[int], None] = lambda count: None
) -> Pixels:
    """All images, (images, size, size, 3), by as many threads as there are cores."""
    pixels = np.empty((len(images), size, size, 3), np.uint8)
    pillow()

    def decode(start: int) -> int:
        part = images[start : start + AT_ONCE]
        for number, one in enumerate(part, start):
            pixels[number] = decoded(one.read(), one.name, size)
        return len(part)

    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        for count in pool.map(decode, range(0, len(images), AT_ONCE)):
            advance(count)
    return pixels


def _header(content: bytes, name: str) -> Any:
    """The image with its header read and judged, but not its pixels."""
    library = pillow()
    if not content:
        raise DataError("the file is empty", file=name, remedy=f"{REPLACE}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = library.open(BytesIO(content), formats=FORMATS)
    except library.DecompressionBombError:
        raise _bomb(name, "more pixels than any photograph has") from None
    except Exception:  # the library has no common error class for damaged headers
        problem = "the image is truncated or damaged: its header cannot be read"
        if not content.startswith(BEGINNINGS):
            problem = "it is not a PNG or JPEG image"
        raise DataError(problem, file=name, remedy=f"{REPLACE}.") from None
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise _bomb(name, f"{width:,} × {height:,} pixels")
    return image


def _bomb(name: str, many: str) -> DataError:
    problem = f"it claims to have {many}; at most {MOST_PIXELS:,} are unpacked"
    return DataError(problem, file=name, remedy="Save it smaller, or delete it.")


def _opened(content: bytes, name: str, size: int) -> Any:
    library = pillow()
    image = _header(content, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.draft("RGB", (2 * size, 2 * size))  # JPEG: unpacked no larger than needed
            image.load()
            image = _upright(image)
    except Exception as error:  # among others OSError, SyntaxError, zlib.error, struct.error
        raise DataError(
            f"the image is truncated or damaged ({str(error) or type(error).__name__})",
            file=name,
            remedy=f"{REPLACE}.",
        ) from None
    image = _coloured(image, library)
    if image.size == (size, size):
        return image
    return image.resize((size, size), library.Resampling.BILINEAR, reducing_gap=2.0)


def _upright(image: Any) -> Any:
    """The image turned as its camera says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _coloured(image: Any, library: Any) -> Any:
    """The image in 8 bits for each of three colours; what is transparent becomes white."""
    if image.mode.startswith(("I", "F")):  # 16 bits of grey
        grey = np.asarray(image, np.float64) / 257.0
        image = library.fromarray(np.clip(np.round(grey), 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = library.new("RGBA", clear.size, (255, 255, 255, 255))
        image.alpha_composite(clear)
    return image if image.mode == "RGB" else image.convert("RGB")
