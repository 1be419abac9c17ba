"""Training speed beside other code, on the same tokens in one run.

    python benchmarks/training.py --work /tmp/bench --shapes base:256x128,12x256:1024x128,12x512:512x128      # a GPU
    python benchmarks/training.py --work /tmp/bench --shapes small:32x128,3x192:32x128 --steps 8              # a CPU
    python benchmarks/training.py --work /tmp/bench --shapes none --merge gpu/training.json --write           # one page of both
    python benchmarks/training.py --work /tmp/bench --quick --engines transformers,trainer,ceiling

Needs transformers 5 and accelerate beside tasklm. Results are kept in the work folder after every
run of an engine.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from arguments import some_of
from tasklm.errors import RunError, TaskLMError
from tasklm.storage.files import digest, write_json, write_text
from training_peers.cases import Case, parse_case
from training_peers.report import markdown, merged, read_results
from training_peers.running import Failed, run_engine
from training_peers.text import make_shards, pack_rows
from training_peers.timing import device_name

ENGINES = (
    "ours",
    "transformers",
    "transformers-eager",
    "transformers-fp32",
    "transformers-dropout",
    "trainer",
    "ceiling",
)
_ROOT = Path(__file__).resolve().parent.parent
_PAGES = _ROOT / "docs" / "benchmarks"
_MADE_UP_TOKENS = 4_000_000
_SEED = 1


def main() -> None:
    """Measures what the command line asks for, joins it with earlier results
    and prints the page.
    """
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    found = read_results(options.merge)
    tokens = _tokens(options) if options.shapes else None
    for case in options.shapes:
        assert tokens is not None
        for result in _measure_case(case, tokens, options):
            found = merged(found, {device_name(torch.device(options.device)): {case.name: result}})
            write_json(options.work / "training.json", {"devices": found})
    page = markdown(found)
    write_json(options.work / "training.json", {"devices": found})
    write_text(options.work / "training.md", page)
    print(page)
    if options.write:
        write_text(_PAGES / "training.md", page)
        write_json(_PAGES / "training.json", {"devices": found})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for text and results, which are kept there"
    )
    parser.add_argument(
        "--shapes",
        help=(
            "SIZE:ROWSxLENGTH,… with a size's name or "
            "LAYERSxWIDTH; none: only --merge. Default by device"
        ),
    )
    parser.add_argument(
        "--engines", type=some_of(ENGINES), default=list(ENGINES), help=f"from {','.join(ENGINES)}"
    )
    parser.add_argument(
        "--tokens",
        type=Path,
        help="folder of token shards (a run's tokens/), specials numbered 0 to 4; default: made up",
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=30_522,
        help="types of tokens; BERT's unless said otherwise",
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds over the engines")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a run")
    parser.add_argument(
        "--seconds", type=float, help="timed seconds of a run, about; in place of --steps"
    )
    parser.add_argument(
        "--warmup", type=int, help="steps before the clock runs; default 10 on a GPU, 2 on a CPU"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=600.0,
        help="seconds after which a run of an engine is given up",
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu"
    )
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads of a process"
    )
    parser.add_argument(
        "--workers",
        type=int,
        help="DataLoader workers of the peers; default 4 on a GPU, none on a CPU",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        help=(
            "training.json files whose other devices and "
            "shapes stay on the page; default: the docs'"
        ),
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks/training.md and .json"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke test: a tiny shape, two steps, nothing compiled",
    )
    options = parser.parse_args()
    gpu = options.device != "cpu"
    options.warmup = options.warmup if options.warmup is not None else (10 if gpu else 2)
    options.workers = options.workers if options.workers is not None else (4 if gpu else 0)
    options.shapes = options.shapes or (
        "base:256x128,12x256:1024x128,12x512:512x128" if gpu else "small:32x128,3x192:32x128"
    )
    if options.quick:
        options.shapes = "1x64:4x32"
        options.vocabulary = 500
        options.steps = 2
        options.warmup = 1
        options.repeats = 1
    if (
        min(options.repeats, options.steps, options.threads) < 1
        or min(options.warmup, options.workers) < 0
    ):
        raise RunError("--repeats, --steps and --threads are 1 at least, --warmup and --workers 0")
    names = [] if options.shapes == "none" else options.shapes.split(",")
    options.shapes = [parse_case(name, options.vocabulary) for name in names]
    options.merge = [_PAGES / "training.json"] if options.merge == [] else options.merge or []
    return options


def _tokens(options: argparse.Namespace) -> Path:
    """The folder of shards that was named, or one with made-up text."""
    if options.tokens is not None:
        named: Path = options.tokens.resolve()
        return named
    amount = 20_000 if options.quick else _MADE_UP_TOKENS
    folder = options.work.resolve() / f"tokens-{amount}-{options.vocabulary}"
    make_shards(folder, amount, options.vocabulary, _SEED)
    return folder


def _measure_case(case: Case, tokens: Path, options: argparse.Namespace) -> Any:
    """Yields the results of a case after every run of an engine; engines take turns, so that a
    disturbance meets all of them.
    """
    rows = options.work.resolve() / f"rows-{case.length}-{digest(str(tokens))}.npy"
    padding = pack_rows(tokens, case.length, options.vocabulary, _SEED, rows)
    engines: dict[str, Any] = {name: {"runs": []} for name in options.engines}
    result = {"about": {**_about(options), "padding": padding}, "engines": engines}
    for turn in range(options.repeats):
        for name in options.engines:
            if "failed" in engines[name]:
                continue
            try:
                engines[name]["runs"].append(
                    run_engine(
                        _spec(name, case, tokens, rows, options), options.work, options.limit
                    )
                )
            except Failed as error:
                engines[name]["failed"] = str(error)
            last = engines[name].get("failed") or engines[name]["runs"][-1]
            print(f"{case.name}, round {turn + 1}, {name}: {last}", file=sys.stderr, flush=True)
            yield result


def _spec(
    engine: str, case: Case, tokens: Path, rows: Path, options: argparse.Namespace
) -> dict[str, Any]:
    gpu = options.device != "cpu"
    return {
        "engine": engine,
        "case": case.name,
        "vocabulary": options.vocabulary,
        "tokens": str(tokens),
        "rows": str(rows),
        "steps": options.steps,
        "seconds": options.seconds,
        "warmup": options.warmup,
        "device": options.device,
        "threads": options.threads,
        "workers": options.workers,
        "compiled": not options.quick,
        "product": 8192 if gpu else 256 if options.quick else 2048,
        "product_seconds": 0.1 if options.quick else 3.0,
    }


def _about(options: argparse.Namespace) -> dict[str, Any]:
    text = (
        f'the token shards "{options.tokens.name}"'
        if options.tokens
        else f"made-up text (Zipf's law, seed {_SEED})"
    )
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "threads": options.threads,
        "vocabulary": options.vocabulary,
        "text": text,
    }


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
