"""Every way to train, briefly: encoder × objective × kind of task × length × precision × compiled
or not.

    python benchmarks/soundness.py --work /tmp/bench --workers 12 --seconds 540 --write
    python benchmarks/soundness.py --work /tmp/bench --device cpu --precisions fp32 \\
        --compiled no --strength 1

Each cell trains 30 steps of a small model on made-up data. None may be skipped for a loss that is
not finite, nothing may be compiled anew, the loss must fall, and the first losses must be those of
fp32 on a CPU, not compiled. All cells would be thousands: those run hold every combination of the
values of any two factors, compiled and not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from arguments import some_of
from soundness_runs.cells import Cell, Outcome, covering, run_cell
from soundness_runs.report import markdown
from tasklm.storage.files import write_json, write_text

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
PRECISIONS, COMPILED = ("bf16", "fp32"), ("yes", "no")


def main() -> None:
    """Runs the cells and prints the page; exits with 1 where one of them shows a problem or was not
    reached.
    """
    options = _options()
    cells = _cells(options)
    outcomes = [
        outcome for outcome in _earlier(options.work / "soundness.json") if outcome.cell in cells
    ]
    reached = {outcome.cell for outcome in outcomes}
    for outcome in _run([cell for cell in cells if cell not in reached], options):
        outcomes.append(outcome)
        if outcome.problems:
            print(f"{outcome.cell}: {'; '.join(outcome.problems)}", file=sys.stderr, flush=True)
        _write(outcomes, cells, options)  # a run that is stopped goes on from here
    _write(outcomes, cells, options)
    print(markdown(outcomes, cells, options.device))
    sys.exit(int(len(outcomes) < len(cells) or any(outcome.problems for outcome in outcomes)))


def _earlier(file: Path) -> list[Outcome]:
    """The outcomes of a run that was stopped, none of which is run again."""
    if not file.exists():
        return []
    return [Outcome.from_dict(values) for values in json.loads(file.read_text(encoding="utf-8"))]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for the results; those that it has are not run again",
    )
    parser.add_argument("--device", default="cuda", help="what the cells are trained on")
    parser.add_argument("--workers", type=int, default=2, help="cells at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="no cell is begun after that")
    parser.add_argument("--precisions", type=some_of(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--compiled", type=some_of(COMPILED), default=list(COMPILED))
    parser.add_argument(
        "--strength", type=int, default=2, help="factors whose combinations are all run"
    )
    parser.add_argument(
        "--write", action="store_true", help="also write the page of the documentation"
    )
    return parser.parse_args()


def _cells(options: argparse.Namespace) -> list[Cell]:
    """The cells, the quick ones first, in an order that spreads what is alike."""
    cells = []
    for compiled in (False, True):
        if ("yes" if compiled else "no") in options.compiled:
            chosen = covering(options.precisions, compiled, options.strength)
            random.Random(1).shuffle(chosen)
            cells += chosen
    return cells


def _write(outcomes: Sequence[Outcome], cells: Sequence[Cell], options: argparse.Namespace) -> None:
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / "soundness.json", [outcome.to_dict() for outcome in outcomes])
        write_text(folder / "soundness.md", markdown(outcomes, cells, options.device))


def _run(cells: Sequence[Cell], options: argparse.Namespace) -> Iterator[Outcome]:
    """Trains the cells in processes of their own, as many at once as asked for; yields them as they
    end.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    deadline = time.time() + options.seconds
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = [pool.submit(_job, cell, options.device, deadline) for cell in cells]
        for job in as_completed(jobs):
            if outcome := job.result():
                yield outcome


def _job(cell: Cell, device: str, deadline: float) -> Outcome | None:
    if time.time() > deadline:
        return None
    with tempfile.TemporaryDirectory() as folder:
        return run_cell(cell, Path(folder), device)


if __name__ == "__main__":
    main()
