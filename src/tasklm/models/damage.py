"""Problems with the folder of a model, which may come from anywhere, in words with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from tasklm.errors import DataError, RecipeError
from tasklm.storage.files import damaged

DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
    AttributeError,
    ArithmeticError,
    OSError,
    SafetensorError,
    DataError,
    RecipeError,
)


@contextmanager
def damage_is_clear(folder: Path) -> Iterator[None]:
    """Turns problems with a foreign folder into a message with the remedy."""
    try:
        yield
    except DAMAGE as error:
        raise damaged(folder, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecipeError):
        return "; ".join(error.problems)
    if isinstance(error, DataError) and error.file:
        return f"{Path(error.file).name}: {error.problem}"
    if isinstance(error, DataError):
        return error.problem
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {Path(str(error.filename)).name}"
    if isinstance(error, OSError):
        return f"{error.strerror}"
    return str(error).partition("\n")[0]
