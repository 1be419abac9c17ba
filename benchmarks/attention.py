"""Padded, packed and variable-length batches of the same examples through our encoders, forward and
backward.

    python benchmarks/lengths.py TASKS --out lengths.json
    python benchmarks/attention.py --work /tmp/bench --lengths lengths.json --encoders base,12x256
    python benchmarks/attention.py --work /tmp/bench --quick

Without --lengths the lengths are made up (log-normal). Token numbers are random: time does not
depend on them.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.errors import RunError, TaskLMError
from tasklm.storage.files import read_json, write_json, write_text
from tasklm.tokens.batches import TokenBatch
from training_peers.attention_report import markdown
from training_peers.batching import WAYS, Examples, batches
from training_peers.cases import POSITIONS, parse_case
from training_peers.report import merged, read_results
from training_peers.timing import computes_in_bf16, device_name, wait_for

_PAGES = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
_SEED = 1


def main() -> None:
    """Measures what the command line asks for, joins it with earlier results
    and prints the page.
    """
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    found = read_results(options.merge)
    device = torch.device(options.device)
    for name, lengths in _lengths(options).items():
        examples = Examples.draw(
            lengths, options.longest, options.examples, options.vocabulary, _SEED
        )
        for encoder in options.encoders:
            result = {
                "about": _about(options, examples),
                "ways": _measure(encoder, examples, device, options),
            }
            found = merged(found, {device_name(device): {f"{name}, {encoder}": result}})
            write_json(options.work / "attention.json", {"devices": found})
    page = markdown(found)
    write_text(options.work / "attention.md", page)
    print(page)
    if options.write:
        write_text(_PAGES / "attention.md", page)
        write_json(_PAGES / "attention.json", {"devices": found})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for results")
    parser.add_argument(
        "--lengths",
        type=Path,
        help='{"name": [tokens of an example, …]}, as benchmarks/lengths.py writes',
    )
    parser.add_argument("--tasks", help="names in --lengths, joined by commas; default: all")
    parser.add_argument(
        "--encoders", default="base,12x256", help="sizes' names or LAYERSxWIDTH, joined by commas"
    )
    parser.add_argument("--batch", type=int, default=32, help="examples of a batch")
    parser.add_argument(
        "--examples", type=int, default=1024, help="examples of a pass, drawn from the lengths"
    )
    parser.add_argument(
        "--longest", type=int, default=POSITIONS, help="tokens after which an example is cut"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=3.0,
        help="timed seconds of a way in a round, about; whole passes",
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds over the ways")
    parser.add_argument("--vocabulary", type=int, default=30_522)
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu"
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        help="attention.json files whose other results stay on the page",
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks/attention.md and .json"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: a tiny encoder, 32 examples"
    )
    options = parser.parse_args()
    if options.quick:
        options.encoders, options.batch, options.examples, options.longest = "1x64", 4, 32, 64
        options.seconds, options.repeats, options.vocabulary = 0.0, 1, 500
    if (
        min(options.batch, options.examples, options.repeats) < 1
        or not 3 <= options.longest <= POSITIONS
    ):
        raise RunError(
            f"--batch, --examples and --repeats are 1 at least, --longest 3 to {POSITIONS}"
        )
    options.encoders = options.encoders.split(",")
    return options


def _lengths(options: argparse.Namespace) -> dict[str, Any]:
    """Returns name → lengths: those of the file that was named, or log-normal ones around 40 and
    200 tokens.
    """
    if options.lengths is None:
        random = np.random.default_rng(_SEED)
        return {
            f"made up, median {middle}": random.lognormal(np.log(middle), 0.7, 4096).astype(int) + 2
            for middle in (40, 200)
        }
    known: dict[str, Any] = read_json(options.lengths)
    wanted = options.tasks.split(",") if options.tasks else list(known)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise RunError(f"{options.lengths} has no {', '.join(missing)}. It has {', '.join(known)}.")
    return {name: known[name] for name in wanted}


def _measure(
    encoder: str, examples: Examples, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Returns, for each way, real tokens per second and the share of the places that hold a real
    token.
    """
    shape: Shape = parse_case(f"{encoder}:1x{options.longest}", options.vocabulary).shape
    torch.manual_seed(_SEED)
    model = Bert(shape).to(device)
    ways = [way for way in WAYS if way != "variable-length" or device.type == "cuda"]
    passes = {
        way: [batch.to(device) for batch in batches(examples, way, options.batch, _SEED)]
        for way in ways
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    memory = dict.fromkeys(ways, 0)
    for way in ways:
        _pass(model, passes[way], device)  # warm-up
    for _ in range(options.repeats):
        for way in ways:
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            speeds[way].append(
                examples.tokens / _seconds_of_pass(model, passes[way], device, options.seconds)
            )
            memory[way] = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {
        way: {
            "tokens_per_second": median(speeds[way]),
            "slowest": min(speeds[way]),
            "fastest": max(speeds[way]),
            "filled": examples.tokens / sum(batch.ids.numel() for batch in passes[way]),
            "memory": memory[way],
        }
        for way in ways
    }


def _seconds_of_pass(
    model: Bert, batches: list[TokenBatch], device: torch.device, least: float
) -> float:
    """The mean seconds of a pass, over as many passes as fill `least` seconds."""
    wait_for(device)
    begun, passes = time.perf_counter(), 0
    while passes == 0 or time.perf_counter() - begun < least:
        _pass(model, batches, device)
        wait_for(device)
        passes += 1
    return (time.perf_counter() - begun) / passes


def _pass(model: Bert, batches: list[TokenBatch], device: torch.device) -> None:
    """Runs every batch forward and backward; gradients are dropped after each."""
    for batch in batches:
        with (
            torch.autocast(device.type, dtype=torch.bfloat16)
            if computes_in_bf16(device)
            else nullcontext()
        ):
            hidden = model(batch)
        (hidden.float() @ model.position.weight[0].detach()).sum().backward()
        model.zero_grad()


def _about(options: argparse.Namespace, examples: Examples) -> dict[str, Any]:
    lengths = examples.lengths
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "batch": options.batch,
        "examples": len(lengths),
        "cut": options.longest,
        "quartiles": [int(np.percentile(lengths, share)) for share in (25, 50, 75)],
        "longest": int(lengths.max()),
        "vocabulary": options.vocabulary,
    }


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
