"""What disks do to files."""

from __future__ import annotations

import random
from collections.abc import Callable


def flipped(content: bytes, draw: random.Random) -> bytes:
    """One bit is another."""
    place = draw.randrange(len(content))
    return (
        content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]
    )


def zeros(content: bytes, draw: random.Random) -> bytes:
    """A stretch of it, or all, is zeros."""
    start = draw.choice((0, draw.randrange(len(content))))
    stop = min(len(content), start + draw.choice((16, 4096, len(content))))
    return content[:start] + bytes(stop - start) + content[stop:]


def empty(content: bytes, draw: random.Random) -> bytes:
    """Nothing is left."""
    return b""


def cut(content: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return content[: draw.randrange(len(content))]


HARMS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flipped,
    "zeros": zeros,
    "empty": empty,
    "cut": cut,
}


def harmed(content: bytes, kind: str, draw: random.Random) -> bytes:
    """The content after a harm that changes it."""
    while True:
        after = HARMS[kind](content, draw)
        if after != content:
            return after
