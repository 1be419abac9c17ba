"""How the command line ends when something goes wrong: with a message, never a traceback.

Expected problems are tasklm's own errors, which name the remedy. Lack of system resources (memory,
threads, valid file names) is reported the same way. Anything else is reported in one line, with the
path of a file that holds the traceback.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from typer.core import TyperGroup

import tasklm
from tasklm.errors import TaskLMError
from tasklm.storage.safe_reading import is_whole

REFUSED, UNFORESEEN, STOPPED = 2, 1, 130  # exit codes
RESTARTS = "TASKLM_RESTARTS"  # environment variable: new processes since the GPU first failed
MOST_RESTARTS = 3
MOST_WORDS = 300  # characters of an error message that was not written for users
_LESS = "Close other programs, or lower model.size, train.batch, tokens.length or select.memory."
_NAMES = "Give another path."
_NO_MEMORY = ("allocate memory", "not enough memory", "bad_alloc", "failed to map segment")
# how PyTorch, its drivers and Triton begin the message of a GPU that fails
_GPU_FAILS = ("CUDA error: ", "CUDA driver error: ", "Triton Error [CUDA]: ")
_SYSTEM = {  # system errors → the remedy
    errno.ENAMETOOLONG: _NAMES,
    errno.ELOOP: "Remove the circular link.",
    errno.EACCES: "Check the permissions.",
    errno.EPERM: "Check the permissions.",
    errno.EROFS: "Choose another folder.",
    errno.ENOSPC: "Free some space.",
    errno.EDQUOT: "Free some space.",
    errno.EIO: "Check the disk.",
    errno.EMFILE: "Raise the limit on open files: ulimit -n.",
    errno.ENFILE: "Close other programs.",
    errno.ENOMEM: _LESS,
}


class EndedTooEarly(RuntimeError):
    """A file or an input ended too early; for Python's own error typer would print "Aborted!"."""


class Verbs(TyperGroup):
    """The verbs, without typer's own message for an input that ends too early."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            ended = EndedTooEarly(str(error) or "a file or an input ended too early")
            vars(ended).update(vars(error))
            raise ended from error


@contextmanager
def traceback_in(folder: Path) -> Iterator[None]:
    """Writes the traceback of an unexpected error inside to the run folder, if there is one."""
    try:
        yield
    except BaseException as error:
        vars(error).setdefault("run_folder", folder)
        raise


def guarded(app: Callable[[], Any], screen: Console) -> None:
    """Runs the command line; problems end in a message and an exit code."""
    # a terminal that cannot show a character shows its code
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # where Python was when a library crashed; a standard error that is no file has no place for it
    with suppress(AttributeError, ValueError, OSError):
        faulthandler.enable()
    try:
        _require_text(sys.argv[1:])
        app()
    except TaskLMError as error:
        _tell(screen, str(error))
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        screen.print("stopped; the same command continues from here.", markup=False)
        sys.exit(STOPPED)
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # panics of Rust libraries are not Exceptions
        if gpu_failed(error) and _restarts() < MOST_RESTARTS and _continues(error):
            _start_again(screen, error)
        if (words := system_words(error)) is not None:
            _tell(screen, words)
            sys.exit(REFUSED)
        _tell(screen, unforeseen_words(error, write_traceback(error)))
        sys.exit(UNFORESEEN)


def gpu_failed(error: BaseException) -> bool:
    """Whether the GPU itself failed: nothing can be computed any more in this process."""
    of_a_gpu = type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and str(error).startswith(_GPU_FAILS)
    )
    return of_a_gpu and not _fills_gpu(error)


def _fills_gpu(error: BaseException) -> bool:
    """Whether an error says that the memory of the GPU is full."""
    text = str(error)
    return (
        type(error).__name__ == "OutOfMemoryError"
        or "CUBLAS_STATUS_ALLOC_FAILED" in text
        or ("CUDA" in text and "out of memory" in text)
    )


def _continues(error: BaseException) -> bool:
    """Whether the same command continues a run, and this process does all of it."""
    return "run_folder" in vars(error) and os.environ.get("WORLD_SIZE", "1") == "1"


def _restarts() -> int:
    given = os.environ.get(RESTARTS, "")
    return int(given) if given.isdecimal() else 0


def _start_again(screen: Console, error: BaseException) -> None:
    """Replaces this process by one that runs the same command."""
    text = str(error).partition("\n")[0][:MOST_WORDS]
    number, file = _restarts() + 1, write_traceback(error)
    where = "" if file is None else f" The traceback is in {file}."
    screen.print(
        f"the GPU failed ({text}); training continues from its last checkpoint in a new process "
        f"({number} of {MOST_RESTARTS} times).{where}",
        markup=False,
        highlight=False,
    )
    os.environ[RESTARTS] = str(number)
    sys.stdout.flush()
    sys.stderr.flush()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the device and the lock of the run, too
    os.execv(sys.executable, [sys.executable, "-m", "tasklm", *sys.argv[1:]])


def _tell(screen: Console, words: str) -> None:
    # soft_wrap: a path must stay in one piece to be copied
    screen.print(f"error: {words}", style="bold red", markup=False, highlight=False, soft_wrap=True)


def _require_text(words: list[str]) -> None:
    """Raises TaskLMError if the command line is not valid UTF-8."""
    for word in words:
        if not is_whole(word):
            printable = word.encode("utf-8", "surrogateescape").decode("ascii", "backslashreplace")
            remedy = "Rename the file, or convert the text to UTF-8 first."
            raise TaskLMError(f"'{printable}' on the command line is not UTF-8. {remedy}")


def system_words(error: BaseException) -> str | None:
    """The resource that the system lacks, with the remedy; None for other errors."""
    text = str(error).partition("\n")[0][:MOST_WORDS]
    if isinstance(error, RuntimeError) and _fills_gpu(error):
        return f"out of GPU memory ({text.partition('. ')[0]}). {_LESS}"
    if gpu_failed(error):
        return (
            f"the GPU failed ({text}). Run the same command "
            f"again: training continues from its last checkpoint."
        )
    if lacks_memory(error):
        return f"out of memory{f' ({text})' if text else ''}. {_LESS}"
    if isinstance(error, RuntimeError) and "start new thread" in text:
        return (
            f"the system cannot start more threads ({text}). Lower hardware.threads, or close "
            "other programs."
        )
    if isinstance(error, OSError) and error.errno in _SYSTEM:
        file = "" if error.filename is None else f"{_shortened(str(error.filename))}: "
        return f"{file}{error.strerror}. {_SYSTEM[error.errno]}"
    return None


def lacks_memory(error: BaseException) -> bool:
    """Whether an error or its cause is a lack of memory, in the wording of any library."""
    if isinstance(error, MemoryError):
        return True
    says_so = isinstance(error, RuntimeError | OSError | ImportError) and any(
        words in str(error).lower() for words in _NO_MEMORY
    )
    before = error.__cause__ or error.__context__
    return says_so or (before is not None and lacks_memory(before))


def _shortened(text: str) -> str:
    printable = text if is_whole(text) else ascii(text)
    return printable if len(printable) <= MOST_WORDS else f"{printable[:100]} … {printable[-100:]}"


def unforeseen_words(error: BaseException, file: Path | None) -> str:
    """One line about an unexpected error, with the path of its traceback."""
    text = " ".join(str(error).split())[:MOST_WORDS]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    where = "its traceback could not be written" if file is None else f"the traceback is in {file}"
    return f"unexpected error ({what}); {where}. Please report it, with that file."


def write_traceback(error: BaseException) -> Path | None:
    """The file with the traceback, in the run folder or the temporary folder; None if neither is
    writable.
    """
    lines = [
        f"tasklm {tasklm.__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: {' '.join(map(ascii, sys.argv))}\n\n",
    ]
    try:
        lines += traceback.format_exception(error)
    except Exception as other:  # an error whose own text cannot be read
        lines += [
            (f"{type(error).__name__}; its traceback cannot be formatted: {type(other).__name__}\n")
        ]
    content = "".join(lines).encode("utf-8", "backslashreplace")
    run = vars(error).get("run_folder")
    folders = [run] if isinstance(run, Path) and run.is_dir() else []
    for folder in [*folders, None]:
        with suppress(OSError):
            prefix = (
                f"traceback-{time.strftime('%Y%m%d-%H%M%S')}-" if folder else "tasklm-traceback-"
            )
            descriptor, name = tempfile.mkstemp(".txt", prefix, folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            return Path(name)
    return None
