"""What the command lines of comparisons of whole runs share."""

from __future__ import annotations

import argparse
import os

from tasklm.encoders.base import ENCODERS
from tasklm.errors import RunError


def add_run_options(parser: argparse.ArgumentParser, rows: str) -> None:
    """Adds what comparisons of whole runs share; `rows` names what is compared."""
    parser.add_argument(
        "--corpus", nargs="+", required=True, help="files, folders or globs of raw text"
    )
    parser.add_argument(
        "--flops", type=float, required=True, help=f"training FLOPs of stage 1, for every {rows}"
    )
    parser.add_argument(
        "--encoder",
        choices=("auto", *ENCODERS.names()),
        default="auto",
        help="default: the automatic choice",
    )
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=3, help="fine-tuning runs of every stage 1")
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        help="a key of the recipe, for all: train.rho1=7; may be repeated",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="runs at once; with more than one, seconds are no fair comparison",
    )
    parser.add_argument(
        "--threads",
        type=int,
        help="CPU threads of a run; default: the cores shared among the workers",
    )
    parser.add_argument(
        "--limit",
        type=float,
        help=(
            "seconds after which no run is started and those under way are stopped, to be continued"
        ),
    )


def checked_run_options(options: argparse.Namespace) -> None:
    """Fills in the threads, makes the work folder, and raises RunError for numbers below 1."""
    options.threads = options.threads or max(
        1, len(os.sched_getaffinity(0)) // max(1, options.workers)
    )
    if min(options.workers, options.threads, options.seeds) < 1:
        raise RunError("--workers, --threads and --seeds are 1 at least")
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)


def setting(text: str) -> tuple[str, str]:
    """The key of a recipe and its value, as --set gives them."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not SECTION.KEY=VALUE")
    return name, value
