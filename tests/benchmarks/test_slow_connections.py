"""The benchmark of slow connections: a small run of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")


def test_a_small_run_makes_the_table(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--connections", "20", "--seconds", "1", "--slow", "bodies"]
    monkeypatch.setattr(sys, "argv", ["slow_connections.py", "--work", str(tmp_path), *small])
    module("slow_connections").main()
    printed = capsys.readouterr()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.out.splitlines()[2:]
    ]
    assert [row[:3] for row in rows] == [
        ["bodies", whose, path]
        for path in ("/health", "/predict")
        for whose in ("the slow one's", "another")
    ]
    for row in rows:
        asked, answered, refused, failed = map(int, row[3:7])
        assert asked == answered > 0 == refused == failed
    assert "20 connections opened" in printed.err
