"""Everything from labelled files to a service, in one process: `python
offline_flow.py DATA OUT`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tests.end_to_end.conftest import options

QUICK = {
    "train__steps": "10",
    "finetune__epochs": "1",
    "finetune__seeds": "1",
    "data__leaks": "keep",
    "evaluate__bootstrap": "100",
}


def tasklm(*words: str) -> None:
    """Runs a verb."""
    app(list(words), standalone_mode=False)


def fit(data: Path, run: Path) -> None:
    """Trains for a moment."""
    given = options(data, **QUICK)
    words = [
        "fit",
        given.pop("data.train"),
        "--corpus",
        given.pop("data.corpus"),
        "--out",
        str(run),
    ]
    for key, value in given.items():
        words += [f"--{key}", value]
    tasklm(*words)


def ask_and_stop(port: int) -> None:
    """Asks the service for everything that it answers, and ends it."""
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urlopen(f"{address}/health", timeout=60).close()
                break
            except OSError:
                time.sleep(0.05)
        for path in ("/", "/page.js", "/task", "/metrics", "/openapi.json"):
            urlopen(f"{address}{path}", timeout=60).close()
        for path, body in (("/predict", {"inputs": ["a text"]}), ("/explain", {"input": "a text"})):
            request = Request(
                address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            urlopen(request, timeout=60).close()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main(data: Path, out: Path) -> None:
    """Trains, predicts, explains, exports and serves."""
    run = out / "runs" / "first"
    fit(data, run)
    tasklm("bill", str(run), "--verify")
    seen = read_bill(run).network
    assert seen["statement"] == "no network call was seen" and not seen["of_them_cut_off"], seen
    tasklm("predict", str(run / "model"), "a text")
    tasklm("explain", str(run), "a text")
    for form in ("hf", "onnx-int8"):
        tasklm("export", str(run), "--to", form, "--out", str(out / form))
    tasklm("predict", str(out / "onnx-int8"), "a text")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = threading.Thread(target=ask_and_stop, args=(port,))
    client.start()
    tasklm("serve", str(run / "model"), "--port", str(port), "--engine", "onnx")
    client.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
