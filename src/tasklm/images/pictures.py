"""Small pictures for pages and files: thumbnails, and what the cells of an image say."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.images.decoding import Pixels, pillow

SCALE = 256  # side of an explanation, in pixels, at least
FOR, AGAINST = (46, 134, 222), (214, 69, 65)  # colours of cells that speak for a label or against


def png_of(pixels: Pixels) -> bytes:
    """An image (height, width, 3) as a PNG file."""
    buffer = BytesIO()
    pillow().fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def data_address(content: bytes) -> str:
    """A PNG file as an address that a page can show without another request."""
    return "data:image/png;base64," + base64.b64encode(content).decode()


def explained_picture(pixels: Pixels, evidence: NDArray[Any]) -> Pixels:
    """An image beside the same under its cells' evidence (side, side): blue cells speak for the
    label, red ones against it, the stronger the more.
    """
    library = pillow()
    side = max(SCALE, len(pixels))
    plain = library.fromarray(pixels).resize((side, side), library.Resampling.NEAREST)
    strength = np.abs(evidence) / max(float(np.abs(evidence).max()), 1e-9)
    colour = np.where(evidence[..., None] >= 0, FOR, AGAINST).astype(np.uint8)
    tint = library.fromarray(colour).resize((side, side), library.Resampling.NEAREST)
    opacity = library.fromarray(np.round(190 * strength).astype(np.uint8))
    opacity = opacity.resize((side, side), library.Resampling.BICUBIC)
    over = library.composite(tint, plain.convert("L").convert("RGB"), opacity)
    gap = np.full((side, side // 16, 3), 255, np.uint8)
    both: Pixels = np.concatenate([np.asarray(plain), gap, np.asarray(over)], 1)
    return both
