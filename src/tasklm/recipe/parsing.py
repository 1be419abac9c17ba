"""The values of single recipe keys: their help and limits, and how they are read and written."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields
from typing import Any

from tasklm.registry import nearest
from tasklm.storage.safe_reading import is_whole

LARGEST = 10**15  # whole number of any key


def key(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    later: bool = False,
) -> Any:
    """A dataclass field with its help text and limits, used by --help and `init`.

    `later`: artefacts were made before there was such a key, and stay valid while it has its
    default (`values_for_key`).
    """
    limits = {"choices": tuple(choices), "low": low, "high": high}
    return field(default=default, metadata={"help": help, "later": later, **limits})


def values_for_key(section: Any) -> dict[str, Any]:
    """The values of a section that the key of an artefact depends on."""
    values = asdict(section)
    for entry in fields(section):
        if entry.metadata["later"] and values[entry.name] == entry.default:
            del values[entry.name]
    return values


def named_value(entry: str) -> tuple[str, str]:
    """The name, "" for none, and the rest of NAME=REST; what has a / before the = is no name."""
    name, equals, rest = entry.partition("=")
    return (name, rest) if equals and "/" not in name else ("", entry)


def value_of(value: Any, hint: Any, limits: Mapping[str, Any]) -> Any:
    """Converts `value` to the type of the key; text from the command line is parsed, other types
    are not guessed.
    """
    if isinstance(hint, types.UnionType):  # int | None: absent, None or "auto"
        if value is None or value == "auto":
            return None
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if typing.get_origin(hint) is tuple:
        items = (
            [part.strip() for part in value.split(",") if part.strip()]
            if isinstance(value, str)
            else value
        )
        if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
            raise ValueError('must be a list of strings, such as ["a", "b"]')
        return tuple(_read_str(item) for item in items)
    converted = _READERS[hint](value)
    if limits["choices"] and converted not in limits["choices"]:
        raise ValueError(
            f"choose from "
            f"{', '.join(limits['choices'])}{nearest(str(converted), list(limits['choices']))}"
        )
    if limits["low"] is not None and converted < limits["low"]:
        raise ValueError(f"must be at least {limits['low']}")
    if limits["high"] is not None and converted > limits["high"]:
        raise ValueError(f"must be at most {limits['high']}")
    return converted


def _read_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value.replace("_", ""))
        except ValueError:
            raise ValueError("must be a whole number") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")
    if abs(value) > LARGEST:
        raise ValueError(f"must be at most {LARGEST:,}")
    return value


def _read_float(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError("must be a number") from None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not abs(value) <= sys.float_info.max
    ):
        raise ValueError("must be a number")
    return float(value)


def _read_bool(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "yes", "1", "false", "no", "0"):
        value = value.lower() in ("true", "yes", "1")
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string in quotes")
    if "\0" in value or not is_whole(value):
        raise ValueError("must be UTF-8 text without NUL; if it is a file name, rename the file")
    return value


def short(value: Any) -> str:
    """A value for an error, in one short line."""
    try:
        text = ascii(value) if isinstance(value, str) and not is_whole(value) else repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a number with very many digits"
    return text if len(text) <= 80 else f"{text[:77]}…"


_READERS: dict[Any, Any] = {int: _read_int, float: _read_float, bool: _read_bool, str: _read_str}
