"""A process that does what may end it: under limits of time and memory, watched from outside."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.limits import SECONDS, limited

ROOT = Path(__file__).resolve().parents[2]
HANG, DIED = "hang", "abort"


@dataclass(frozen=True)
class Outcome:
    """How something ended: `end` is an exit code of the command line, or what happened in its
    place."""

    end: int | str
    err: str  # standard error, or why
    out: str = ""  # standard output


class Worker:
    """A process that is asked one thing after the other, and begun anew where one of them ended
    it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, action: str, *given: str) -> Outcome:
        """How an action of `ACTIONS` ended."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None and process.stdout is not None
        begin = self._log.seek(0, os.SEEK_END)
        process.stdin.write(json.dumps([action, *given]).encode() + b"\n")
        process.stdin.flush()
        line = self._line(process)
        self._log.seek(begin)
        logged = self._log.read().decode("utf-8", "replace")
        if not line:
            hangs = process.poll() is None
            process.kill()
            code, self._process = process.wait(), None
            return Outcome(HANG if hangs else DIED, f"exit code {code}; {logged[-500:]}")
        ended = json.loads(line)
        return Outcome(ended["end"], ended["err"] + logged, ended["out"])

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        ends = time.monotonic() + self.seconds
        line = b""
        while (
            not line.endswith(b"\n")
            and select.select([process.stdout], [], [], max(0.0, ends - time.monotonic()))[0]
        ):
            block = os.read(process.stdout.fileno(), 1 << 20)
            if not block:
                return b""
            line += block
        return line if line.endswith(b"\n") else b""

    def _started(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(ROOT), *sys.path])
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "RUST_BACKTRACE": "0",
        }
        command = [sys.executable, "-m", "tests.hostile.workers"]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=ROOT,
        )

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_verb(*words: str) -> Outcome:
    """Runs a command line as `tasklm` does."""
    from tasklm.cli import app

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["tasklm", *words]
    screen, app.screen.file = app.screen.file, err
    try:
        with redirect_stdout(out), redirect_stderr(err):
            app.main()
        return Outcome(0, err.getvalue(), out.getvalue())
    except SystemExit as end:
        return Outcome(end.code if isinstance(end.code, int) else 0, err.getvalue(), out.getvalue())
    finally:
        sys.argv, app.screen.file = before, screen


def start_from(folder: str) -> Outcome:
    """Does what a run does with `train.start` before it trains."""
    import torch

    from tasklm.errors import TaskLMError
    from tasklm.models.language_model import load_language_model
    from tasklm.train.start import OfCheckpoint, OfRun, starting_weights

    try:
        start = starting_weights(Path(folder))
        start.digest()
        if isinstance(start, OfCheckpoint):
            start.checkpoint.weights()
        elif isinstance(start, OfRun):
            load_language_model(start.folder, torch.device("cpu"))
        return Outcome(0, "", repr(start.shape))
    except TaskLMError as error:
        return Outcome(2, f"error: {error}")


def read_sample(number: str, seed: str) -> Outcome:
    """Reads a mutated sample of `files`."""
    import random

    from tests.hostile.files import mutated, outcome, samples

    sample = mutated(samples()[int(number)], random.Random(int(seed)))
    with tempfile.TemporaryDirectory() as folder:
        return Outcome({"read": 0, "refused": 2}[outcome(sample, sample.write(Path(folder)))], "")


ACTIONS: dict[str, Any] = {"verb": run_verb, "start": start_from, "read": read_sample}


def main() -> None:
    """Answers one request a line, until there are no more."""
    import torch  # noqa: F401  (no limit counts the libraries of a build for GPUs: gigabytes)

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        action, *given = json.loads(line)
        try:
            with limited():
                ended = ACTIONS[action](*given)
        except BaseException as error:  # what a person would see as a traceback
            import traceback

            ended = Outcome(
                type(error).__name__, "".join(traceback.format_exception(error))[-2000:]
            )
        answers.write(json.dumps({"end": ended.end, "err": ended.err, "out": ended.out}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
