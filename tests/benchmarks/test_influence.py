"""The benchmark of influence: a small run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_small_run_measures_every_engine(tmp_path: Path) -> None:
    words = [
        "--encoder",
        "2x64",
        "--passages",
        "16",
        "--peer-passages",
        "16",
        "--task-batches",
        "2",
        "--threads",
        "1",
        "--device",
        "cpu",
    ]
    command = [sys.executable, str(BENCHMARKS / "influence.py"), "--work", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "influence.json").read_text(encoding="utf-8"))
    assert [row["text"] for row in rows] == ["whole rows"] * 5 + ["16 to 126 tokens"] * 5
    assert (
        all(row["passages_per_second"] > 0 for row in rows)
        and rows[0]["times"] == rows[5]["times"] == 1.0
    )
    assert done.stdout.count("| tasklm: last layer |") == 2
    assert done.stdout.count("| tasklm: embeddings |") == 2
