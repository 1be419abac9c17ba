"""The benchmark of the service: a small run of it, and load that counts what fails."""

from __future__ import annotations

import shutil
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")


def test_a_small_run_makes_the_table(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    program = module("service")
    monkeypatch.setattr(program, "PAGE", tmp_path / "service.md")
    small = ["--models", "1x64", "--seconds", "1", "--connections", "4", "--engines", "torch"]
    monkeypatch.setattr(
        sys, "argv", ["service.py", "--work", str(tmp_path / "work"), *small, "--write"]
    )
    program.main()
    written = (tmp_path / "service.md").read_text(encoding="utf-8")
    assert written.strip() == capsys.readouterr().out.strip()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in written.splitlines()
        if line.startswith("| 1 ")
    ]
    assert [row[1] for row in rows] == ["tasklm serve, torch, 2 × 1", "transformers pipeline"]
    for row in rows:
        assert row[0] == "1 × 64" and float(row[2].replace(",", "")) > 1 and row[4] == "0"
        assert 0 < float(row[5]) <= float(row[6]) and float(row[7]) > 0
    assert rows[1][3] == "1.0×" and float(rows[0][8]) >= 1


class Answering(socketserver.StreamRequestHandler):
    """Answers every third request with 503."""

    count = 0

    def handle(self) -> None:
        while True:
            length = 0
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not line:
                return
            assert self.rfile.read(length).startswith(b'{"inputs": ["')
            Answering.count += 1
            status = b"503 Service Unavailable" if Answering.count % 3 == 0 else b"200 OK"
            self.wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("tool", ["wrk", "ours"])
def test_load_counts_what_fails(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str
) -> None:
    if tool == "wrk" and not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    load = module("service_peers.load")
    if tool == "ours":
        monkeypatch.setattr(load.shutil, "which", lambda name: None)
    Answering.count = 0
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = load.put_load(server.server_address, ["one", "other"], 1, 1.0, tmp_path)
        server.shutdown()
    assert found.by == ("wrk" if tool == "wrk" else "a Python client")
    assert (
        found.requests <= Answering.count <= found.requests + 1
        and abs(found.failed - found.requests // 3) <= 1
    )
    assert 0 < found.p50 <= found.p99
