"""Commands in processes of their own that need not import everything anew: each is forked from one that has, and can be killed like any."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Command:
    """One `tasklm …` in a process of its own."""

    def __init__(self, parent: subprocess.Popen[str], words: list[str]) -> None:
        assert parent.stdin is not None and parent.stdout is not None
        self.answers, self.status = parent.stdout, None
        parent.stdin.write(json.dumps(words) + "\n")
        parent.stdin.flush()
        self.pid = int(self.answers.readline())

    def ended(self) -> bool:
        """Returns whether it has ended."""
        return self.status is not None or bool(select.select([self.answers], [], [], 0)[0])

    def wait(self) -> int:
        """Returns the exit status, or less than 0: the signal that ended it."""
        if self.status is None:
            self.status = int(self.answers.readline())
        return self.status

    def kill(self) -> None:
        """Ends it at once, as SIGKILL does."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        self.wait()


class Commands:
    """Starts commands, one at a time."""

    def __init__(self, parent: subprocess.Popen[str]) -> None:
        self._parent = parent

    def start(self, words: list[str]) -> Command:
        """Starts `tasklm` with these words."""
        return Command(self._parent, words)


@contextmanager
def forked() -> Iterator[Commands]:
    """Yields what starts commands, and ends with it."""
    with subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        yield Commands(parent)
        parent.communicate()


def _serve() -> None:
    """Forks a process for each line of standard input; writes its number, and at its end its status."""
    import sklearn.linear_model  # noqa: F401  (late imports of every training)

    from tasklm import cli, pipeline  # noqa: F401

    for line in sys.stdin:
        if not (child := os.fork()):
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(silence, stream)
            sys.argv = ["tasklm", *json.loads(line)]
            sys.exit(cli.main())
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
