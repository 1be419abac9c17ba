"""The files of a run: written atomically and synced, read with a check, cleaned up after a kill.

A file is written under a temporary name, synced, renamed, and its folder synced: after a power cut
it is either the old one or the new one. A *record* is a JSON file with a checksum of its own
values, so that a damaged one is never trusted. The lock of a run folder is here too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasklm.errors import DamagedError, DataError, RunError
from tasklm.storage.safe_reading import is_whole, open_regular, read_json_file

# bytes of a JSON file that a run wrote for itself: as many as there are predictions
MOST_OF_A_RUN = 1 << 40
FORMAT = 1  # part of every key: raise it when an artefact's layout changes
CONTENT_BYTES = 12  # of the hash of a file in a key
CHECKSUM = "crc32"  # the last key of a record
ARTEFACT = "artefact.json"  # the record of a finished artefact
PARTIAL = "partial.json"  # the record of a partial one
MADE_BY = {  # artefact of a run → the command that rebuilds it
    **dict.fromkeys(
        ("decontaminated", "plan", "ranking", "selected", "candidates", "candidate-tokens"),
        "select",
    ),
    **dict.fromkeys(("scope", "scoring-model", "influence"), "select"),
    "tokens": "tokenize",
    "stage1": "train",
    "wide": "train",
    "teachers": "finetune",
    "taught-text": "finetune",
    "raw-text": "finetune",
    "stage2": "finetune",
    **dict.fromkeys(
        ("predictions", "baselines", "model", "ensemble", "ensemble-predictions", "compare"),
        "evaluate",
    ),
    **dict.fromkeys(("soup-predictions", "coverage"), "evaluate"),
}
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # some network file systems cannot sync a folder
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<process>\d+)\.(tmp|partial)|fetched\.(?P<other>\d+)\.tmp"
)


def digest(value: Any) -> str:
    """A short stable hash of plain values."""
    text = json.dumps([FORMAT, value], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def file_digest(path: Path) -> str:
    """A hash of a whole file's content; for files of the size of a labelled set."""
    hasher = hashlib.blake2b(digest_size=CONTENT_BYTES)
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a whole file, which protects against forgery, too."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Syncs the content of a file, or the names in a folder, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(number)


def temporary_name(path: Path) -> Path:
    """The temporary name under which this process writes a file; `sweep` knows such names."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def publish(temporary: Path, path: Path) -> None:
    """Gives a synced file or folder its final name, safe against a power cut."""
    temporary.replace(path)
    sync(path.parent)


def write_bytes(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part.

    Without `synced` this does not cover a power cut, after which the file may have any content.
    """
    temporary = temporary_name(path)
    with full_disk_is_clear(path):
        make_parents(path)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        if synced:
            publish(temporary, path)
        else:
            temporary.replace(path)


def write_text(path: Path, content: str) -> None:
    """Writes a text file atomically as UTF-8."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, value: Any, *, synced: bool = True) -> None:
    """Writes plain values as indented JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode("utf-8"), synced=synced)


def write_record(path: Path, values: Mapping[str, Any]) -> None:
    """Writes values as JSON with their checksum, which `read_json` compares and takes out."""
    plain = json.loads(json.dumps(values))  # as they will be read
    write_json(path, {**plain, CHECKSUM: _checksum(plain)})


def read_json(path: Path, most: int = MOST_OF_A_RUN) -> Any:
    """The values of a JSON file; raises DamagedError, with the remedy, if it is damaged."""
    try:
        values = read_json_file(path, most)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise damaged(path, "it is not JSON") from None
    except ValueError as error:
        raise damaged(path, str(error)) from None
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except OSError as error:
        raise damaged(path, str(error.strerror)) from None
    if _is_record(values):
        checksum = values.pop(CHECKSUM, None)
        if checksum != _checksum(values):
            raise damaged(path, "its checksum does not match")
    return values


def _is_record(values: Any) -> bool:
    """Whether values were written with a checksum; lists of files always are."""
    if not isinstance(values, dict):
        return False
    return list(values)[-1:] == [CHECKSUM] or isinstance(values.get("files"), dict)


def _checksum(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def damaged(file: Path, problem: str) -> DamagedError:
    """The error for one of our files or folders that is damaged, with the remedy."""
    artefact = next((folder for folder in (file, *file.parents[:3]) if is_artefact(folder)), None)
    return DamagedError(file, problem, _way_out(file, artefact), artefact)


def is_artefact(folder: Path) -> bool:
    """Whether a folder is an artefact, finished or partial."""
    return (folder / ARTEFACT).exists() or folder.name.endswith(".partial")


def _way_out(file: Path, artefact: Path | None) -> str:
    run = run_above(file)
    if run is not None:
        folder_name = file.absolute().relative_to(run).parts[0].removesuffix(".partial")
        name = re.sub(r"-\d+$", "", folder_name)  # stage1-2 is built like stage1
        return f"Rebuild it: tasklm {MADE_BY.get(name, 'report')} {run}"
    folder = artefact or (file if file.is_dir() else file.parent)
    if (folder / "export.json").exists():
        return f"Delete {folder} and export the model again."
    if (folder / "config.json").exists() or file.name == "config.json":
        return f"Copy {folder} again from where it was trained."
    return f"Delete {folder} and run the same command again to rebuild it."


def run_above(file: Path) -> Path | None:
    """The run folder that a file is in; for an ablation, the folder of its run."""
    for folder in file.absolute().parents[:6]:
        if (folder / "recipe.toml").exists() and (folder / "manifest.json").exists():
            if folder.parent.name == "compare":
                return run_above(folder) or folder
            return folder
    return None


@contextmanager
def full_disk_is_clear(path: Path) -> Iterator[None]:
    """Turns system errors on writing into messages that name the remedy."""
    try:
        yield
    except Exception as error:
        if _is_full_disk(error):
            remedy = "Free some space and run the same command again: finished work is kept."
            raise RunError(f"the disk is full while writing {path}. {remedy}") from error
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise RunError(
                f"{path} cannot be written ({error.strerror}). Choose another folder with --out."
            ) from error
        raise


def _is_full_disk(error: Exception) -> bool:
    """Whether an error of the system or of a library means that the disk is full.

    NumPy reports a truncated write without the system's error number, and safetensors has its own
    class.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError):
        return re.fullmatch(r"\d+ requested and \d+ written", str(error)) is not None
    if type(error).__name__ == "SafetensorError":
        return re.search(r"\(os error (28|122)\)", str(error)) is not None
    return False


def make_folder(folder: Path) -> Path:
    """The folder, created if it does not exist; raises if a file is in the way."""
    if not is_whole(str(folder)):
        problem = f"the name of the folder {str(folder)!a} is not UTF-8"
        raise RunError(f"{problem}. Choose another folder with --out.")
    with full_disk_is_clear(folder):
        try:
            make_parents(folder / "any")
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{folder} is not a folder. Choose another folder with --out.") from None
    return folder


def make_parents(path: Path) -> None:
    """Creates and syncs the folder that a path is in, and those above it."""
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """Gives a file a second, new name, or copies it if links are not supported."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sweep(folder: Path) -> None:
    """Deletes temporary files that ended processes left in a folder."""
    if not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        match = _TEMPORARY.fullmatch(path.name)
        if match and not _lives(int(match["process"] or match["other"])):
            remove(path)


def _lives(process: int) -> bool:
    if process == os.getpid():
        return False  # this process has written nothing yet: its number belonged to an earlier one
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove(path: Path) -> None:
    """Deletes a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def require_own(folder: Path) -> None:
    """Raises RunError if a folder has files but no run, because these must not be replaced."""
    begun = (folder / ".lock").exists() or (folder / "manifest.json").exists()
    if begun or not folder.is_dir():
        return
    if any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise RunError(
            f"{folder} contains files but no run. Choose a new or an empty folder with --out."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which the system releases when the process ends, however it ends."""
    make_folder(folder)
    with full_disk_is_clear(folder):
        file = (folder / ".lock").open("a+", encoding="utf-8", errors="replace")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            remedy = "Wait for it to end, or choose another folder with --out."
            raise RunError(f"{folder} is in use by {owner}. {remedy}") from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def require_file(path: Path, remedy: str) -> Path:
    """The path if it exists; the error says what to do."""
    if not path.exists():
        raise DataError("there is no such file or folder", file=path, remedy=remedy)
    return path
