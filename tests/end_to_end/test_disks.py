"""Disks that rot and disks that lose their power: the two benchmarks, as far as a minute goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
PYTHON = [sys.executable, "-m", "tests.charts"]  # whose reports have no charts


def test_every_file_of_a_run_once_damaged_is_made_again_or_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PYTHON, BENCHMARKS / "damages.py", "--work", tmp_path / "work", "--together"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    last = done.stdout.splitlines()[-1]
    assert "rebuilt" in last and "28 clear error" in last


def test_a_run_whose_power_was_cut_ends_the_same(tmp_path: Path) -> None:
    words = ["--work", tmp_path / "work", "--images", "4", "--seed", "7"]
    done = subprocess.run(
        [*PYTHON, BENCHMARKS / "power_cuts.py", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "4 of 4 images end as the run that was never cut"
