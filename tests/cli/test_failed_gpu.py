"""A GPU that fails ends the process, not the run; a library that crashes shows where Python was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ACCELERATOR = "torch.AcceleratorError('CUDA error: unspecified launch failure')"


def failed_gpu(
    times: str, run: str, processes: str = "1", error: str = ACCELERATOR
) -> subprocess.CompletedProcess[str]:
    """A command that the GPU fails in; what follows it is `tasklm --help`."""
    script = (
        "import sys, pathlib, torch\n"
        "from rich.console import Console\n"
        "from tasklm.cli.last_resort import guarded, traceback_in\n"
        "sys.argv = ['tasklm', '--help']\n"
        "def app():\n"
        f"    with {run}:\n"
        f"        raise {error}\n"
        "guarded(app, Console(stderr=True, width=200))"
    )
    changed = {"TASKLM_RESTARTS": times, "WORLD_SIZE": processes}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **changed},
        check=False,
    )


def test_a_run_goes_on_in_a_new_process_when_the_gpu_fails(tmp_path: Path) -> None:
    in_a_run = f"traceback_in(pathlib.Path({str(tmp_path)!r}))"
    elsewhere = "open('/dev/null')"
    done = failed_gpu("0", in_a_run)
    assert done.returncode == 0 and "Usage" in done.stdout
    assert "in a new process (1 of 3 times)" in done.stderr
    for refused in (
        failed_gpu("3", in_a_run),
        failed_gpu("0", elsewhere),
        failed_gpu("0", in_a_run, "2"),
    ):
        assert refused.returncode == 2 and "Run the same command again" in refused.stderr


@pytest.mark.parametrize(
    "text",
    [
        "Triton Error [CUDA]: unspecified launch failure",
        "CUDA driver error: unspecified launch failure",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
    ],
)
def test_a_gpu_that_fails_in_a_launch_is_known_by_the_message_of_any_library(
    text: str, tmp_path: Path
) -> None:
    in_a_run = f"traceback_in(pathlib.Path({str(tmp_path)!r}))"
    done = failed_gpu("0", in_a_run, error=f"RuntimeError({text!r})")
    assert done.returncode == 0 and "in a new process (1 of 3 times)" in done.stderr
    (file,) = tmp_path.glob("traceback-*.txt")  # kept for a report: the new process knows nothing
    assert str(file) in "".join(done.stderr.split("\n"))
    assert text in file.read_text(encoding="utf-8")


def test_a_crash_of_a_library_shows_where_python_was() -> None:
    script = (
        "import os, signal\n"
        "from rich.console import Console\n"
        "from tasklm.cli.last_resort import guarded\n"
        "def crashing():\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "guarded(crashing, Console(stderr=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode < 0 and "in crashing" in done.stderr
