"""Image files of all modes become RGB squares; what is none is refused by its name."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasklm.errors import DataError
from tasklm.images.decoding import Encoded, decode_all, decoded, side_lengths
from tests.images.samples import arrays, png


def test_rgb_pixels_stay_as_they_are() -> None:
    pixels, _ = arrays(1)
    assert np.array_equal(decoded(png(pixels[0]), "one.png", 16), pixels[0])


def test_grey_palette_transparent_and_deep_images_become_rgb() -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    wanted = np.repeat(grey[..., None], 3, -1)
    assert np.array_equal(decoded(png(grey), "grey", 16), wanted)
    deep = (grey.astype(np.uint16) * 257).astype(np.uint16)
    assert np.array_equal(decoded(png(deep), "16 bits", 16), wanted)
    bits = decoded(png(grey > 127), "one bit", 16)
    assert set(np.unique(bits)) == {0, 255}
    clear = np.zeros((16, 16, 4), np.uint8)
    clear[:8, :, 3] = 255  # black above, and nothing below
    composed = decoded(png(clear), "transparent", 16)
    assert not composed[:8].any() and (composed[8:] == 255).all()
    palette = Image.fromarray(wanted).convert("P")
    assert decoded(png(np.asarray(palette.convert("RGB"))), "palette", 16).shape == (16, 16, 3)


def test_other_sizes_are_resized_as_a_whole() -> None:
    halves = np.zeros((40, 100, 3), np.uint8)
    halves[:, 50:] = 255
    small = decoded(png(halves), "wide", 16)
    assert small.shape == (16, 16, 3)
    assert small[:, :7].max() < 10 and small[:, 9:].min() > 245
    assert side_lengths(png(halves), "wide") == (100, 40)


def test_a_picture_is_turned_as_its_camera_says() -> None:
    pixels, _ = arrays(1)
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    path = png(pixels[0])
    image = Image.fromarray(pixels[0])
    import io

    buffer = io.BytesIO()
    image.save(buffer, "PNG", exif=turned)
    assert np.array_equal(
        decoded(buffer.getvalue(), "turned", 16), decoded(path, "", 16)[::-1, ::-1]
    )


def bomb(side: int) -> bytes:
    """A PNG file whose header claims a size that its content does not have."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(30)))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b"a text, no image", "not a PNG or JPEG"),
        (b"GIF89a" + bytes(20), "not a PNG or JPEG"),
        (bomb(20_000), "claims to have"),
        (bomb(9_000), "claims to have 9,000 × 9,000"),
        (bomb(16), "truncated or damaged"),
    ],
)
def test_what_is_no_whole_image_is_refused_by_its_name(content: bytes, told: str) -> None:
    with pytest.raises(DataError, match=told) as error:
        decoded(content, "folder/odd.png", 16)
    assert str(error.value).startswith("folder/odd.png: ") and error.value.remedy


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_image_cut_off_anywhere_is_refused(kind: str) -> None:
    rng = np.random.default_rng(0)
    whole = png(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), kind)
    for end in range(1, len(whole) - 16, max(1, len(whole) // 25)):
        with pytest.raises(DataError, match="cut"):
            decoded(whole[:end], "cut", 32)


def test_files_are_decoded_in_their_order(tmp_path: Path) -> None:
    pixels, _ = arrays(7)
    files = []
    for number, one in enumerate(pixels):
        files.append(tmp_path / f"{number}.png")
        files[-1].write_bytes(png(one))
    assert np.array_equal(decode_all([Encoded.of_file(file) for file in files], 16), pixels)
    with pytest.raises(DataError, match="more than 10 bytes"):
        Encoded.of_file(files[0], 10).read()
