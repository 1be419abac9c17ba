"""Combinations of kinds of tasks and options that nobody has thought of together: each is trained,
asked, explained, updated and exported, briefly and on made-up data.

    python benchmarks/combinations.py --seconds 600 --seed 1

None may end in a traceback, and an export must predict what the model predicts. What cannot be
combined is refused in words. Combinations are numbered: the same seed and number are tried again
with --first and --count. The exit code is 1 where one showed a fault.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the data is that of the tests

from tests.end_to_end.combinations import combination, ended


def main() -> None:
    """Tries combinations until the time is up, and prints how they ended."""
    options = _options()
    ends = time.time() + options.seconds
    numbers = range(options.first, options.first + options.count)
    counted: Counter[str] = Counter()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        work = [(options.seed, number, ends) for number in numbers]
        for number, end in pool.map(_try, work):
            if not end:
                break
            word = end.partition(":")[0]
            counted[word] += 1
            if word != "done":
                print(f"{number}: {combination(options.seed, number)}\n  {end}", flush=True)
        pool.shutdown(cancel_futures=True)
    print(", ".join(f"{counted[word]} {word}" for word in ("done", "refused", "fault")))
    sys.exit(int(counted["fault"] > 0))


def _try(work: tuple[int, int, float]) -> tuple[int, str]:
    """How a combination ended; "" if the time is up."""
    seed, number, ends = work
    if time.time() > ends:
        return number, ""
    with tempfile.TemporaryDirectory(prefix="combination-") as folder:
        return number, ended(combination(seed, number), Path(folder))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, default=1)
    add("--first", type=int, default=0, help="number of the first combination")
    add("--count", type=int, default=1000, help="combinations at most")
    add("--seconds", type=float, default=600, help="no combination is begun after that")
    add("--workers", type=int, default=os.cpu_count() or 1, help="combinations at once")
    return parser.parse_args()


if __name__ == "__main__":
    main()
