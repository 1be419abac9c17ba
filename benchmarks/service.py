"""Requests per second of `tasklm serve`, beside transformers' pipeline behind the same kind of
application.

python benchmarks/service.py --work scratch --seconds 60 --write          # docs/benchmarks/service.md
python benchmarks/service.py --work scratch --layouts 2x1,1x2,1x1 --engines onnx,torch

All services have the same models, with random weights, and run one after the other; another process
puts the load on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from arguments import some_of
from service_peers.load import Load, put_load
from service_peers.model import LENGTH, LONGEST, SHORTEST, made_up_texts, make_model
from tasklm.errors import TaskLMError
from tasklm.export.exporting import export

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks" / "service.md"
SEED, TEXTS, CHECKED = 1, 512, 16
WARM_UP = 3.0  # seconds of load that are not counted
PACKAGES = ("torch", "onnxruntime", "transformers", "fastapi", "uvicorn", "uvloop")
ALIKE = 1e-3  # probabilities of two services that compute the same


@dataclass(frozen=True)
class Row:
    """A service and what it did."""

    name: str
    load: Load
    cpu: float  # milliseconds of all its threads, for one request
    batch: float | None  # inputs of a model batch, on average
    megabytes: float


@contextmanager
def running(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """Starts a service and gives its process and address; ends it as a person would."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"listening on http://([\d.]+):(\d+)", line):
                address = found[1], int(found[2])
                break
        else:
            raise SystemExit(f"a service did not start: {' '.join(command)}\n{''.join(said)}")
        _wait_for(address)
        yield process, address
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_for(address: tuple[str, int]) -> None:
    for _ in range(600):
        try:
            probabilities(address, ["a text"])
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("a service does not answer")


def probabilities(address: tuple[str, int], texts: list[str]) -> list[dict[str, float]]:
    """The probabilities that a service gives, asked one text at a time."""
    found = []
    for text in texts:
        body = json.dumps({"inputs": [text]}).encode()
        request = urllib.request.Request(
            f"http://{address[0]}:{address[1]}/predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            found.append(json.load(response)["answers"][0]["probabilities"])
    return found


def batch_size(address: tuple[str, int]) -> float:
    """The inputs of a model batch of ours, on average."""
    with urllib.request.urlopen(
        f"http://{address[0]}:{address[1]}/metrics", timeout=60
    ) as response:
        counts = dict(
            line.rsplit(" ", 1)
            for line in response.read().decode().splitlines()
            if not line.startswith("#")
        )
    return float(counts["tasklm_batch_inputs_sum"]) / float(counts["tasklm_batch_inputs_count"])


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """The CPU time that a process has used (on Linux)."""
    fields = (
        Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf(
        "SC_CLK_TCK"
    )  # in user mode and in the system's


def peak_megabytes(process: subprocess.Popen[str]) -> float:
    """The most resident memory that a process has had (on Linux)."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def measured(
    name: str, command: list[str], options: argparse.Namespace, ours: bool
) -> tuple[Row, list[dict[str, float]]]:
    """What a service did under load, and its probabilities for some texts."""
    texts = made_up_texts(TEXTS, SEED + 1)
    with running(command) as (process, address):
        given = probabilities(address, texts[:CHECKED])
        if options.seconds > WARM_UP:
            put_load(address, texts, options.connections, WARM_UP, options.work)
        used = cpu_seconds(process)
        load = put_load(address, texts, options.connections, options.seconds, options.work)
        cpu = 1000 * (cpu_seconds(process) - used) / load.requests
        row = Row(name, load, cpu, batch_size(address) if ours else None, peak_megabytes(process))
    told = (
        f"{load.per_second:,.0f} requests/s, "
        f"{load.failed} failed, p50 {load.p50:.1f} ms, p99 {load.p99:.1f} ms"
    )
    print(f"{name}: {told}, CPU {row.cpu:.2f} ms a request", file=sys.stderr, flush=True)
    return row, given


def rows_of(layers: int, width: int, options: argparse.Namespace) -> tuple[list[Row], float]:
    """The rows of ours and of the pipeline, which is the last, for one model; and how far their
    probabilities are apart at most.
    """
    model, plain = (options.work / f"{layers}x{width}" / name for name in ("model", "hf"))
    if not model.exists():
        make_model(model, layers, width, SEED)
        export(model, "hf", plain)
    rows, given = [], []
    for engine in options.engines:
        for workers, threads in options.layouts:
            how = [
                "--engine",
                engine,
                "--workers",
                str(workers),
                "--threads",
                str(threads),
                "--collect-ms",
                str(options.collect_ms),
            ]
            command = [
                sys.executable,
                "-m",
                "tasklm",
                "serve",
                str(model),
                "--port",
                "0",
                "--no-explain",
                *how,
            ]
            row, found = measured(
                f"tasklm serve, {engine}, {workers} × {threads}", command, options, True
            )
            rows.append(row)
            given.append(found)
    row, naive = measured(
        "transformers pipeline",
        [sys.executable, str(HERE / "service_peers" / "naive.py"), str(plain)],
        options,
        False,
    )
    worst = max(
        abs(mine[label] - theirs[label])
        for found in given
        for mine, theirs in zip(found, naive, strict=True)
        for label in theirs
    )
    if worst > ALIKE:
        raise SystemExit(
            f"the services do not compute the same: probabilities differ by {worst:.2g}"
        )
    return [*rows, row], worst


def page(found: dict[str, list[Row]], worst: float, options: argparse.Namespace) -> str:
    """The page with the table: the rows of each model."""
    load_by = next(iter(found.values()))[-1].load.by
    warm = f" after {WARM_UP:g} that do not count" if options.seconds > WARM_UP else ""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "",
    )
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name))
    lines = [
        "# The service beside a plain one",
        "",
        (
            "Written by `benchmarks/service.py`. One text a request; "
            "every connection sends its next request when it has its answer."
        ),
        (
            "`tasklm serve` collects requests into batches for its workers "
            "(workers × threads of each). The plain service is transformers'"
        ),
        (
            "text-classification pipeline in the same kind of FastAPI "
            "application, called one request at a time, with all cores for its"
        ),
        (
            "matrices. Both have the same weights and run one after the "
            "other; the load comes from another process on the same cores."
        ),
        "",
        (
            f"- **Models**: layers × width (2 × 128 is the demo's), "
            f"random weights, rows of up to {LENGTH} tokens; made-up texts of"
        ),
        f"  {SHORTEST} to {LONGEST} words, half of them with 20 or fewer",
        (
            f"- **Load**: {options.connections} connections, "
            f"{options.seconds:g} seconds{warm}, by {load_by};"
        ),
        "  failed: errors, timeouts and statuses above 399",
        f"- **Same answers**: the probabilities of {CHECKED} texts differ by at most {worst:.1e}",
        (
            f"- **Where**: {cpu or platform.machine()}, "
            f"{len(os.sched_getaffinity(0))} cores; Python {platform.python_version()}, {packages}"
        ),
        "",
        (
            "| model | service | requests/s | of the pipeline | failed | p50, "
            "ms | p99, ms | CPU, ms a request | inputs a batch | memory, MB |"
        ),
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for model, row, naive in (
        (model, row, rows[-1].load) for model, rows in found.items() for row in rows
    ):
        load = row.load
        cells: list[Any] = [
            model,
            row.name,
            f"{load.per_second:,.0f}",
            f"{load.per_second / naive.per_second:.1f}×",
            load.failed,
        ]
        cells += [f"{load.p50:.1f}", f"{load.p99:.1f}", f"{row.cpu:.2f}"]
        cells += ["1" if row.batch is None else f"{row.batch:.1f}", f"{row.megabytes:,.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def pairs(text: str) -> list[tuple[int, int]]:
    """Returns pairs of numbers from words such as 2x1, joined by commas."""
    found = [re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", word) for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(
            "write two numbers with an x between them, such as 2x1, joined by commas"
        )
    return [(int(one[1]), int(one[2])) for one in found if one]


def main() -> None:
    """Measures, and prints or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for the model; one that is there is used again",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of load for each service")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument(
        "--models", type=pairs, default=[(2, 128), (3, 192)], help="LAYERSxWIDTH, joined by commas"
    )
    parser.add_argument(
        "--engines",
        type=some_of(("onnx", "torch")),
        default=["onnx", "torch"],
        help="of ours, joined by commas",
    )
    parser.add_argument(
        "--layouts", type=pairs, default=[(2, 1)], help="WORKERSxTHREADS of ours, joined by commas"
    )
    parser.add_argument(
        "--collect-ms", type=float, default=2.0, help="milliseconds in which ours collects a batch"
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/service.md")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    found, apart = {}, []
    for layers, width in options.models:
        found[f"{layers} × {width}"], worst = rows_of(layers, width, options)
        apart.append(worst)
    text = page(found, max(apart), options)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
