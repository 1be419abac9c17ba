"""What the command lines of several benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The reader of an argument that names some of `known`, joined by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}"
            )
        return names

    return read
