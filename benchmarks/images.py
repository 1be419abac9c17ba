"""Images with few labels: table 4.6 and figure 4.7 of cross-view training (Clark 2021, chapter 4).

    python benchmarks/images.py --table 4.6 --data cifar10_jpeg.npz --work /tmp/bench \
        --subsets 1,2,3,4,5 --at-once 3 --seconds 540

--table 4.6: the error on test of every method, beside the published ones; --figure 4.7: how active
each cell is with CVT + VAT against VAT, and the accuracy of softmax layers that read one cell. A
run is a set of labelled images of the file; intervals are of the mean over these (Student's t, 95 %).
--extra has further recipe keys. The same command goes on where it was stopped; --seconds 0 begins
no run and shows what there is. On a GPU several runs at once share it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from image_runs.plan import METHODS, OF_FIGURE, Wanted, planned
from image_runs.tables import figure_text, table_text

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "cifar10.toml"


def main() -> None:
    """Runs what is missing and prints the table or the figure."""
    options = _options()
    methods = options.methods or list(METHODS)
    if options.figure:
        methods = [method for method in OF_FIGURE if method in methods]
    shifts = {"no": [False], "yes": [True], "both": [False, True]}[options.shifts]
    wanted = planned(methods, options.subsets, shifts)
    failed = _run_all(wanted, options)
    results = _results(wanted, options.work)
    print(figure_text(results) if options.figure else table_text(results, options.subsets))
    for name in failed:
        print(f"failed: {name}, see {options.work / name}.log")
    if failed:
        raise SystemExit(1)


def _run_all(wanted: list[Wanted], options: argparse.Namespace) -> list[str]:
    """Runs what has no result yet, some at once; the names of those that failed."""
    options.work.mkdir(parents=True, exist_ok=True)
    waiting = [one for one in wanted if not (options.work / one.name / "result.json").exists()]
    begun, running, failed = time.monotonic(), dict[str, subprocess.Popen[bytes]](), list[str]()
    while waiting or running:
        late = time.monotonic() - begun >= options.seconds
        if late and not running:
            break
        while waiting and not late and len(running) < options.at_once:
            one = waiting.pop(0)
            running[one.name] = _start(one, options)
        time.sleep(0.2)
        for name, process in list(running.items()):
            if late and options.stop and process.poll() is None:
                process.terminate()
                process.wait()
            if process.poll() is not None:
                del running[name]
                failed += [name] * (process.returncode not in (0, -15))
    return failed


def _start(one: Wanted, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    extra = {}
    words = shlex.split(options.extra)
    for name, value in zip(words[::2], words[1::2], strict=True):
        extra[name.removeprefix("--")] = value
    keys = {**one.overrides(options.data, options.steps), **extra}
    threads = max(1, (os.cpu_count() or 1) // options.at_once)
    keys.setdefault("hardware.threads", threads)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    log = (options.work / f"{one.name}.log").open("ab")
    words = [str(options.work / one.name), str(options.recipe), json.dumps(keys)]
    cells = "1" if options.figure or one.method in OF_FIGURE else "0"
    command = [sys.executable, "-m", "image_runs.worker", *words, cells]
    folder = Path(__file__).parent
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def _results(wanted: list[Wanted], work: Path) -> dict[Wanted, dict[str, Any]]:
    """The results that there are."""
    results = {}
    for one in wanted:
        file = work / one.name / "result.json"
        if file.exists():
            results[one] = json.loads(file.read_text(encoding="utf-8"))
    return results


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", choices=["4.6"], help="the table to print")
    what.add_argument("--figure", choices=["4.7"], help="the figure to print")
    add("--data", type=lambda text: Path(text).resolve(), required=True, help="archive of images")
    add("--work", type=lambda text: Path(text).resolve(), required=True, help="folder for runs")
    add("--recipe", type=lambda text: Path(text).resolve(), default=RECIPE)
    add("--methods", type=_names, help=f"some of {','.join(METHODS)}; by default all")
    add("--subsets", type=_numbers, default=[1, 2, 3, 4, 5], help="sets of labelled images")
    add("--shifts", choices=["no", "yes", "both"], default="no", help="with shifts and flips")
    add("--steps", type=int, help="updates, instead of the recipe's")
    add("--at-once", type=int, default=1, help="runs at the same time")
    add("--seconds", type=float, default=float("inf"), help="begin no further run after these")
    add("--stop", action="store_true", help="also stop what runs then; it goes on next time")
    add("--extra", default="", help='further recipe keys: --extra="--image.noise_norm 6"')
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in METHODS]:
        raise argparse.ArgumentTypeError(f"unknown: {unknown[0]}; choose from {', '.join(METHODS)}")
    return names


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


if __name__ == "__main__":
    main()
