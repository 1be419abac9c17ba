"""Bytes of input files, plain or compressed: damaged and malicious files raise DataErrors."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasklm.errors import DataError
from tasklm.storage.safe_reading import open_regular

CHECK_THE_PATH = (
    "Check the path. Paths in a recipe are relative to "
    "the recipe's folder, others to the folder you are in."
)
COMPRESSED = (".gz", ".zst")
UNPACKED = 256 << 20  # bytes that any compressed file may unpack to
# times its own size that a larger one may unpack to; text compresses to a third or a tenth
RATIO = 250
_AT_ONCE = 1 << 17  # bytes of a compressed file that are read at once
OF_A_ROW = 100  # bytes that a row counts besides its content, because rows are objects in memory

# receives the bytes of a file as they stand on disk, in order, while it is read
Watch = Callable[[memoryview], object]


def open_binary(path: Path) -> io.RawIOBase | io.BytesIO:
    """Opens a regular file; any problem raises a DataError."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy=CHECK_THE_PATH) from None
    except IsADirectoryError:
        raise DataError(
            "this is a folder, not a file", file=path, remedy="Name a file in it."
        ) from None
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        remedy = "Check its permissions and its disk."
        if "not a regular file" in str(error.strerror):
            remedy = "Files are read several times: save its output to a file, and name that."
        raise DataError(problem, file=path, remedy=remedy) from None


class Unpacked:
    """Counts the unpacked bytes of a file; one that unpacks to far too much is a decompression
    bomb.
    """

    def __init__(self, path: Path, size: int, remedy: str) -> None:
        self.path, self.remedy = path, remedy
        self.most, self.size = max(UNPACKED, RATIO * size), 0

    def add(self, size: int) -> None:
        """Adds to the count; raises DataError if it is too large."""
        self.size += size
        if self.size > self.most:
            problem = (
                f"the file unpacks to more than {RATIO} times its size, which is not plausible "
                "for text"
            )
            raise DataError(problem, file=self.path, remedy=self.remedy)


class Source(io.RawIOBase):
    """The decompressed bytes of a file; damage raises a DataError."""

    def __init__(self, path: Path, watch: Watch | None) -> None:
        self.path = path
        self._stream: Any
        self._file = open_binary(path)
        self._unpacked: Unpacked | None = None
        self._read = read = _Watched(self._file, watch)
        if path.suffix.lower() == ".gz":
            self._stream = gzip.GzipFile(fileobj=io.BufferedReader(read, _AT_ONCE))
        elif path.suffix.lower() == ".zst":
            # Arrow's reader notices a truncated file; zstandard's stream reader takes it for the
            # end
            import pyarrow as pa  # here: few files are of this kind, and importing it takes a while

            self._stream = pa.CompressedInputStream(pa.PythonFile(read, "r"), "zstd")
        else:
            self._stream = read
        if self._stream is not read:
            remedy = "If you trust it, unpack it yourself, and name the unpacked file."
            self._unpacked = Unpacked(path, size_of(self._file), remedy)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._stream.read(len(buffer))
            if not block and len(
                buffer
            ):  # whatever follows the compressed text is in the file, too
                self._read_on()
        except EOFError:
            raise self._damaged("the compressed file is truncated") from None
        except (zlib.error, OSError) as error:
            if self._unpacked is None:
                raise DataError(
                    f"the file cannot be read ({error})", file=self.path, remedy="Check its disk."
                ) from None
            what = "truncated" if "truncated" in str(error).lower() else f"damaged ({error})"
            raise self._damaged(f"the compressed file is {what}") from None
        if self._unpacked is not None:
            self._unpacked.add(len(block) + OF_A_ROW * block.count(b"\n"))
        buffer[: len(block)] = block
        return len(block)

    def _read_on(self) -> None:
        """Reads the rest of the file for the one who watches."""
        while self._read.read(_AT_ONCE):
            pass

    def _damaged(self, problem: str) -> DataError:
        return DataError(
            problem,
            file=self.path,
            remedy="Copy or download it again, or compress the original again.",
        )

    def close(self) -> None:
        self._file.close()
        super().close()


class _Watched(io.RawIOBase):
    def __init__(self, file: io.RawIOBase | io.BytesIO, watch: Watch | None) -> None:
        self._file, self._watch = file, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        if self._watch is not None:
            self._watch(memoryview(buffer)[:count])
        return count


def size_of(file: io.RawIOBase | io.BytesIO) -> int:
    """The bytes of an open file."""
    if isinstance(file, io.BytesIO):
        return len(file.getbuffer())
    return os.fstat(file.fileno()).st_size
