"""Commands of tasklm in processes forked from this one, which has imported and compiled everything;
their end is told."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass

LIMIT = 600  # seconds after which a command counts as hanging


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    status: int  # less than 0: the signal that ended it
    output: str

    @property
    def kind(self) -> str:
        """One word: done, error (in words), traceback, hanging or crash."""
        if "Traceback (most recent call last)" in self.output:
            return "traceback"
        if self.status < 0:
            return "hanging" if self.status == -signal.SIGALRM else "crash"
        if self.status == 0:
            return "done"
        # an end without a word is no better
        return "error" if "error: " in self.output else "traceback"


def warm_up(words: list[str]) -> None:
    """Does a command in this process, so that those forked from it find everything imported and
    compiled."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed, redirect_stdout(printed):
        assert _be_tasklm(words) == 0


def run(words: list[str], prepare: Callable[[], None] = lambda: None) -> Outcome:
    """Runs `tasklm` with these words in a process of its own, after `prepare` in the same."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        if not (child := os.fork()):
            _redirect(printed.fileno())
            signal.alarm(LIMIT)
            prepare()
            os._exit(_be_tasklm(words))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        printed.seek(0)
        return Outcome(status, printed.read())


def _redirect(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(number, 1)
    os.dup2(number, 2)


def _be_tasklm(words: list[str]) -> int:
    from tasklm.cli import app
    from tasklm.pipeline import flow  # noqa: F401

    before, sys.argv = sys.argv, ["tasklm", *words]
    try:
        app.main()
    except SystemExit as end:
        return int(end.code or 0) if isinstance(end.code, int | None) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
