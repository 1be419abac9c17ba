"""The GPU kernels without a GPU: Triton interprets them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

OLDEST = (3, 7)  # Triton whose interpreter runs all of the kernels
PROGRAM = Path(__file__).with_name("interpreted_kernels.py")


def triton_version() -> tuple[int, ...]:
    """The version of Triton, (0,) where there is none."""
    try:
        return tuple(map(int, version("triton").split(".")[:2]))
    except PackageNotFoundError:
        return (0,)


@pytest.mark.skipif(
    triton_version() < OLDEST, reason="needs Triton 3.7, which the dev extra has on Linux"
)
def test_kernels_give_what_pytorch_gives() -> None:
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = [
        (name, float(error)) for name, error in (line.split() for line in done.stdout.splitlines())
    ]
    expected = {"attention": 11, "gelu": 4, "norm": 6, "losses": 8, "adamw": 4, "stages": 1}
    assert [name for name, _ in errors] == [
        name for name, count in expected.items() for _ in range(count)
    ]
    assert all(error < 1e-5 for _, error in errors), errors
