"""Loops that Numba compiles when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

Loop = Callable[..., Any]


def compiled_when_called(function: Loop) -> Loop:
    """The function, compiled without Python's lock; for loops that no other compiled loop calls.

    Importing Numba takes a while; commands that call none of these loops do not wait for it.
    """

    @cache
    def machine_code() -> Any:
        from tasklm.corpus.kernels import compiled

        return compiled(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return machine_code()(*arguments)

    return call
