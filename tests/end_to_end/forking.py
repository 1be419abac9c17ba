"""Commands in processes of their own, forked from one that has imported everything already; they
can be killed like any.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class Command:
    """One `tasklm …` in a process of its own, or in several that train together, as torchrun would
    start them.
    """

    def __init__(self, parent: subprocess.Popen[str], words: list[str], processes: int) -> None:
        assert parent.stdin is not None and parent.stdout is not None
        self._answers, self._status = parent.stdout, -1
        parent.stdin.write(json.dumps({"words": words, "processes": processes}) + "\n")
        parent.stdin.flush()
        self._numbers = json.loads(self._answers.readline())
        self._waited = False

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._waited or bool(select.select([self._answers], [], [], 0)[0])

    def wait(self) -> int:
        """The exit status, 0 where all went well; less than 0: the signal that ended it."""
        if not self._waited:
            statuses = json.loads(self._answers.readline())
            self._waited, self._status = True, next((status for status in statuses if status), 0)
        return self._status

    def kill(self) -> None:
        """Ends it at once, as SIGKILL does."""
        if not self.ended():
            for number in self._numbers:
                os.kill(number, signal.SIGKILL)
        self.wait()


class Commands:
    """Starts commands, one at a time."""

    def __init__(self, parent: subprocess.Popen[str], said: IO[str]) -> None:
        self._parent, self._said = parent, said

    def run(self, words: list[str], processes: int = 1) -> None:
        """Runs `tasklm` with these words to its end; anything but success fails the test, with the
        last of what was said.
        """
        status = self.start(words, processes).wait()
        self._said.seek(0)
        assert status == 0, (status, self._said.read()[-4000:])

    def start(self, words: list[str], processes: int = 1) -> Command:
        """Starts `tasklm` with these words."""
        return Command(self._parent, words, processes)


@contextmanager
def forked() -> Iterator[Commands]:
    """Yields what starts commands, and ends with it."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen([sys.executable, "-m", __name__], stderr=said, **pipes) as parent,
    ):
        yield Commands(parent, said)
        parent.communicate()


def _serve() -> None:
    """Forks processes for each line of standard input; writes their numbers, and at their end their
    statuses.
    """
    import sklearn.linear_model  # noqa: F401  (late imports of every training)
    import torch._dynamo  # noqa: F401  (the first optimiser imports it)

    from tasklm.cli.app import main
    from tasklm.device.machine import set_up
    from tasklm.pipeline import flow  # noqa: F401
    from tasklm.recipe.schema import Hardware
    from tasklm.tokens.masking import uniform_rows
    from tasklm.train.timing import matmul_ceiling
    from tests.charts import leave_out

    leave_out()
    uniform_rows(1, 1, 0)  # compiled functions take a while to get ready at their first call
    # measured once for each process, which the children then have
    matmul_ceiling(set_up(Hardware(device="cpu", precision="fp32", threads=1)))

    for line in sys.stdin:
        asked = json.loads(line)
        meeting = _free_port()
        children = []
        for rank in range(asked["processes"]):
            if not (child := os.fork()):
                _be(rank, asked["processes"], meeting)
                sys.argv = ["tasklm", *asked["words"]]
                sys.exit(main())
            children.append(child)
        print(json.dumps(children), flush=True)
        print(
            json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]),
            flush=True,
        )


def _be(rank: int, processes: int, meeting: int) -> None:
    """Lets this process speak where errors go, and makes it one of several
    where there are several.
    """
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if processes > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting),
            "GLOO_SOCKET_IFNAME": "lo",
        }


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


if __name__ == "__main__":
    _serve()
