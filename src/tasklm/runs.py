"""The run folder: artefacts with the hash of what made them, atomic writes, resume, lock.

An artefact is a folder (or file) inside the run. It is built under the name `NAME.partial` together with the key
of its inputs and is renamed when complete, so what is half written never looks finished. A partial folder with the
same key is handed back to the builder, which continues it; with another key it is thrown away.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from tasklm.errors import DataError, RunError
from tasklm.safe_reading import is_whole, open_regular, read_json_file

# bytes of a JSON file that a run wrote for itself: as many as there are predictions
MOST_OF_A_RUN = 1 << 40
FORMAT = 1  # part of every key: raise it when an artefact's layout changes


def digest(value: Any) -> str:
    """Returns a short stable hash of plain values."""
    text = json.dumps([FORMAT, value], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def file_digest(path: Path) -> str:
    """Returns a hash of a whole file's content; for files of the size of a labelled set."""
    hasher = hashlib.blake2b(digest_size=12)
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with full_disk_is_clear(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def write_text(path: Path, content: str) -> None:
    """Writes a text file atomically as UTF-8."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes plain values as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Returns the values of a JSON file; a damaged one is named."""
    try:
        return read_json_file(path, MOST_OF_A_RUN)
    except ValueError:
        raise RunError(f"{path} is damaged. Delete it and run the same command again.") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}). Delete it and run the same command again.") from None


@contextmanager
def full_disk_is_clear(path: Path) -> Iterator[None]:
    """Turns the system's errors on writing into messages that say the way out."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"the disk is full while writing {path}. Free some space and run the same command again: finished work is kept."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise RunError(f"{path} cannot be written ({error.strerror}). Choose another folder with --out.") from error
        raise


def make_folder(folder: Path) -> Path:
    """Returns the folder, made if it is not there; says so when a file is in the way."""
    if not is_whole(str(folder)):
        raise RunError(f"the name of the folder {str(folder)!a} is not UTF-8. Choose another folder with --out.")
    with full_disk_is_clear(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{folder} is not a folder. Choose another folder with --out.") from None
    return folder


class Crew(Protocol):
    """The processes that do one run together; the first of them does what happens once."""

    @property
    def first(self) -> bool:
        """Returns whether this process is the first."""
        ...

    def wait(self) -> None:
        """Returns when all of them have come here."""
        ...

    def by_itself(self) -> AbstractContextManager[None]:
        """Returns a context in which this process acts as if it were the only one."""
        ...


class OneProcess:
    """A crew of one."""

    first = True

    def wait(self) -> None:
        """Returns at once."""

    def by_itself(self) -> AbstractContextManager[None]:
        """Returns a context that changes nothing."""
        return nullcontext()


class Artefacts:
    """A folder of artefacts built once per key.

    `waiting`: given for a folder that other runs build in too; it is told when this one waits for another to finish an artefact.
    """

    def __init__(self, folder: Path, crew: Crew | None = None, waiting: Callable[[str], None] | None = None) -> None:
        self.folder, self.crew, self.waiting = make_folder(folder), crew or OneProcess(), waiting

    def path(self, name: str) -> Path:
        """Returns where the finished artefact called `name` is or will be."""
        return self.folder / name

    def key(self, name: str) -> str | None:
        """Returns the key of the finished artefact, or None when there is none."""
        record = self.path(name) / "artefact.json"
        return str(read_json(record)["key"]) if record.exists() else None

    def seconds(self, name: str) -> float:
        """Returns how long the finished artefact took to build, interruptions left out."""
        record = self.path(name) / "artefact.json"
        return float(read_json(record)["seconds"]) if record.exists() else 0.0

    def build(self, name: str, key: str, builder: Callable[[Path], None], *, together: bool = False) -> Path:
        """Returns the artefact's folder, built by `builder(partial_folder)` unless it is there with the same key.

        Of several processes the first one builds and the others wait for it; or all build it `together`, and the first
        makes and finishes its folder.
        """
        done = self.key(name) == key
        self.crew.wait()  # until all have looked
        if not done and self.crew.first:
            with self._alone(name):
                if self.key(name) != key:  # another run may have built it meanwhile
                    self._build(name, key, builder, together)
        elif not done and together:
            self.crew.wait()  # until the folder is there
            builder(self.folder / f"{name}.partial")
        self.crew.wait()
        return self.path(name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Holds back other runs that build the same artefact in a shared folder; the system frees the lock when a process ends."""
        if self.waiting is None:
            yield
            return
        with full_disk_is_clear(self.folder):
            file = (self.folder / f".{name}.lock").open("a", encoding="utf-8")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.waiting(f"waiting for another run, which makes {self.path(name)}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _build(self, name: str, key: str, builder: Callable[[Path], None], together: bool) -> None:
        final, partial = self.path(name), self.folder / f"{name}.partial"
        if final.exists() and self.key(name) is None:
            raise RunError(f"{final} is in the way, and no part of a run. Move it away, or choose another folder with --out.")
        if partial.exists() and _partial_key(partial) != key:
            shutil.rmtree(partial)
        with full_disk_is_clear(partial):
            partial.mkdir(exist_ok=True)
            write_json(partial / "partial.json", {"key": key, "seconds": _partial_seconds(partial)})
            started = time.monotonic()
            try:
                if together:
                    self.crew.wait()
                    builder(partial)
                else:
                    with self.crew.by_itself():
                        builder(partial)
            finally:
                seconds = _partial_seconds(partial) + time.monotonic() - started
                if partial.exists():
                    _note_seconds(partial, key, seconds)
            write_json(partial / "artefact.json", {"key": key, "seconds": round(seconds, 3)})
            (partial / "partial.json").unlink()
            _put(partial, final)


def _put(partial: Path, final: Path) -> None:
    """Makes a complete artefact final. An older one goes away whole: half of one, after a kill, would not be known as ours."""
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.replace(old)
    partial.replace(final)
    shutil.rmtree(old, ignore_errors=True)


def _note_seconds(partial: Path, key: str, seconds: float) -> None:
    # on a full disk the error under way says so already; only the clock of this part is lost
    with suppress(RunError):
        write_json(partial / "partial.json", {"key": key, "seconds": round(seconds, 3)})


def _partial_key(partial: Path) -> str | None:
    record = partial / "partial.json"
    return str(read_json(record)["key"]) if record.exists() else None


def _partial_seconds(partial: Path) -> float:
    record = partial / "partial.json"
    return float(read_json(record)["seconds"]) if record.exists() else 0.0


def require_own(folder: Path) -> None:
    """Raises RunError where a folder holds files but no run: a run must not replace what is not its own."""
    begun = (folder / ".lock").exists() or (folder / "manifest.json").exists()
    if not begun and folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise RunError(f"{folder} holds files, but no run. Choose a new or an empty folder with --out.")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which the system frees when the process ends, however it ends."""
    make_folder(folder)
    with full_disk_is_clear(folder):
        file = (folder / ".lock").open("a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise RunError(f"{folder} is in use by {owner}. Wait for it to end, or choose another folder with --out.") from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def require_file(path: Path, remedy: str) -> Path:
    """Returns the path if it exists; the error says what to do."""
    if not path.exists():
        raise DataError("there is no such file or folder", file=path, remedy=remedy)
    return path
