"""Starts one run of one engine as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A run ended without a report; the text says with which words."""


def run_engine(spec: dict[str, Any], scratch: Path, limit: float) -> dict[str, Any]:
    """The report of a run that may take `limit` seconds."""
    spec_file, report = scratch / "spec.json", scratch / "report.json"
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    report.unlink(missing_ok=True)
    paths = [str(_BENCHMARKS), str(_BENCHMARKS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    threads = str(spec["threads"])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "training_peers.worker", str(spec_file), str(report)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {limit:g} s") from None
    if done.returncode or not report.exists():
        said = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise Failed(said[-1].strip()[:300] if said else f"ended with status {done.returncode}")
    value: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return value
