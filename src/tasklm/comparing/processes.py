"""Work in a process of its own: all contestants have the same threads, and nothing of what another
one has loaded or kept in memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tasklm.comparing.worker import FAILED
from tasklm.errors import RunError
from tasklm.export.onnx_runtime import SWITCH
from tasklm.storage.files import read_json, write_json

THREADS = (
    "OMP_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)  # what libraries read when they are loaded
SILENT = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", SWITCH: "1"}  # asks nobody


def in_a_process(work: dict[str, Any], folder: Path, threads: int) -> None:
    """Does some work in another process, and waits for it; RunError says why it failed."""
    file, failed = folder / "work.json", folder / "failed.json"
    failed.unlink(missing_ok=True)
    write_json(file, work)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {**SILENT, **dict.fromkeys(THREADS, str(threads))}
    command = [sys.executable, "-m", "tasklm.comparing.worker", str(file)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        try:
            status = process.wait()
        except BaseException:  # an interrupt: the process has it too, or sees its input end
            process.send_signal(signal.SIGINT)
            raise
    if status == FAILED and failed.exists():
        problem = str(read_json(failed)["problem"])
        failed.unlink()
        raise RunError(problem)
    if status:
        raise RunError(_ended(status))
    file.unlink()


def _ended(status: int) -> str:
    """Why a process ended, as far as its status tells."""
    if status == -signal.SIGKILL:
        return "its process was killed, most likely for lack of memory."
    if status < 0:
        return f"its process was ended by signal {-status}."
    return f"its process ended with status {status}; what it printed says why."
