"""Reading foreign files: only regular files of bounded size, and JSON without surprises."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import sys
from pathlib import Path, PosixPath
from typing import Any

MOST_JSON = 256 << 20  # bytes of a file that describes something: a configuration, a tokenizer
DEEPEST = 100  # nested lists and objects
# lists and objects in one text: each takes some 80 bytes in memory, but only two in a file
MOST_NESTED = 10_000_000
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_SURROGATE = re.compile("[\ud800-\udfff]")


class MemoryFile(PosixPath):
    """A file in memory: readers that take a path open it without touching the disk."""

    content: bytes

    @classmethod
    def of(cls, name: str, content: bytes) -> MemoryFile:
        """A file of this name and content."""
        file = cls(name)
        file.content = content
        return file

    def is_dir(self, **kwargs: Any) -> bool:
        """False, without touching the disk."""
        return False


def open_regular(path: Path) -> io.RawIOBase | io.BytesIO:
    """Opens a regular file for reading; raises OSError for others, which may never end or begin."""
    if isinstance(path, MemoryFile):
        return io.BytesIO(path.content)
    try:  # non-blocking: opening a named pipe would wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:  # NUL, or a lone surrogate
        raise OSError(errno.EINVAL, f"no file can have this name: {error}") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return io.FileIO(descriptor, "rb")
    os.close(descriptor)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a regular file")


def require_regular(path: Path) -> Path:
    """The path of a regular file, for libraries that open it; anything else raises OSError."""
    open_regular(path).close()
    return path


def is_there(path: Path) -> bool:
    """Whether a path exists; an invalid name does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def home_path(text: str) -> Path:
    """The path that a text names, with "~" as the home folder unless there is no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def is_link(path: Path) -> bool:
    """Whether a path is that of a symbolic link."""
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def resolved_path(path: Path) -> Path:
    """An absolute path with its symbolic links resolved as far as possible."""
    try:
        return path.resolve()
    # circular links; invalid names
    except (OSError, RuntimeError, ValueError):
        return Path(os.path.abspath(path))  # noqa: PTH100  (Path.absolute leaves ".." in)


def read_bytes(path: Path, most: int = MOST_JSON) -> bytes:
    """The content of a regular file; one of more than `most` bytes raises OSError."""
    blocks, size = [], 0
    with open_regular(path) as file:
        while size <= most and (block := file.read(1 << 20)):
            blocks.append(block)
            size += len(block)
    if size > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return b"".join(blocks)


def read_text(path: Path, most: int = MOST_JSON) -> str:
    """The UTF-8 text of a regular file; invalid UTF-8 raises ValueError."""
    return read_bytes(path, most).decode("utf-8")


def read_json_file(path: Path, most: int = MOST_JSON) -> Any:
    """The values of a regular file of JSON; raises OSError or ValueError with readable messages."""
    return parse_json(read_text(path, most))


def parse_json(text: str) -> Any:
    """The values of a JSON text; raises ValueError with a readable message if it is invalid. All
    strings in it can be written as UTF-8: lone surrogates, which JSON escapes can express, are
    replaced.
    """
    nested = text.count("[") + text.count("{")
    if nested > MOST_NESTED:
        raise ValueError(f"it has more than {MOST_NESTED:,} lists and objects")
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise ValueError(f"it has a number with more than {most:,} digits") from None
    if nested > DEEPEST:
        _require_flat(values)
    if "\\u" in text:
        return _whole(values)
    return values


def whole_text(text: str) -> str:
    """A text that UTF-8 can represent: lone surrogates are replaced."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    return text.isascii() or _SURROGATE.search(text) is None


def _too_deep() -> str:
    return f"its lists or objects are nested more than {DEEPEST} deep"


def _require_flat(values: Any) -> None:
    """Raises ValueError if values are nested too deeply for recursive functions."""
    level, depth = [values], 0
    while level:
        depth += 1
        if depth > DEEPEST + 1:
            raise ValueError(_too_deep())
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        level = [value for value in inner if isinstance(value, dict | list)]


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {whole_text(name): _whole(item) for name, item in value.items()}
    return value
