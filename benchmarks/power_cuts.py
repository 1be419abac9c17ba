"""The power is cut at random moments of a run, and the same command given again.

    python benchmarks/power_cuts.py --work /tmp/cuts --images 30

It must end with the same results. No power is cut: a process is followed by its fsyncs and killed,
and what it wrote without one is lost or spoilt (durability/disk.py). A third of the runs are cut a
second time while they go on. It exits with 1 where any does not end as the run that was never cut.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from durability.commands import run, warm_up
from durability.disk import Disk, cut_power
from durability.results import differences, results_of
from durability.small_run import fit_command, write_data

AGAIN = 1 / 3  # share of the runs that are cut twice
LONGEST = 0.05  # seconds after an fsync, at most


def main() -> None:
    """Prints an outcome for each image of a disk."""
    options = _options()
    work: Path = options.work
    shutil.rmtree(work, ignore_errors=True)
    data = write_data(work / "data")
    warm_up(fit_command(data, work / "warm" / "run"))
    straight = work / "straight"
    straight.mkdir()
    disk = Disk(straight, work / "memory")
    assert run(fit_command(data, straight / "run"), lambda: disk.follow(0, 0.0)).kind == "done"
    syncs, results = disk.syncs, results_of(straight)
    print(f"the run that is never cut: {syncs} fsyncs", flush=True)
    right = 0
    for number in range(options.images):
        outcome = one_image(work, data, results, syncs, random.Random(1000 * options.seed + number))
        right += outcome.startswith("same")
        print(f"image {number + 1}: {outcome}", flush=True)
    print(f"{right} of {options.images} images end as the run that was never cut")
    sys.exit(right < options.images)


def one_image(
    work: Path, data: Path, results: dict[str, Any], syncs: int, draw: random.Random
) -> str:
    """Cuts the power of a run once or twice; returns what becomes of it when it goes on."""
    place, memory, moments = work / "cut", work / "memory", []
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(memory, ignore_errors=True)
    place.mkdir()
    command = fit_command(data, place / "run")
    for _ in range(2 if draw.random() < AGAIN else 1):
        cut_at, wait = 1 + draw.randrange(syncs), draw.choice((-1.0, draw.uniform(0, LONGEST)))
        disk = Disk(place, memory)
        outcome = run(command, lambda: disk.follow(cut_at, wait))  # noqa: B023  (it runs at once)
        if outcome.kind not in ("crash", "done"):
            return f"{outcome.kind} after a cut at {moments}: {outcome.output[-400:]}"
        if outcome.kind == "crash":
            moments.append(cut_at)
            cut_power(place, memory, draw)
        shutil.rmtree(memory, ignore_errors=True)
    outcome = run(command)
    if outcome.kind != "done":
        return f"{outcome.kind} after a cut at {moments}: {outcome.output[-400:]}"
    if other := differences(results, results_of(place)):
        return f"other results after a cut at {moments}: {', '.join(other)}"
    return f"same after a cut at {' and '.join(map(str, moments)) or 'no'} fsync"


def _options() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the runs; it is emptied"
    )
    parser.add_argument("--images", type=int, default=30, help="disks that lose their power")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of what is lost")
    return parser.parse_args()


if __name__ == "__main__":
    main()
