"""Mutated files of every format and kind, read one after the other: how many are read, how many
refused in words, and what else.

    python benchmarks/fuzz.py --cases 2500 --seed 1

Each case is a small good file (or folder) with one to four random changes, read as `tasklm check`,
`predict`, `run` and `rerank` read it, in a process with 2 GiB of memory and two minutes. The exit
code is 1 where one ended in a traceback, a hang or an abort.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the generator stands in the tests

from tests.hostile.files import samples
from tests.hostile.workers import DIED, HANG, Worker

WORDS = {0: "read", 2: "refused", HANG: "hangs", DIED: "aborts"}


def main() -> None:
    """Reads all cases and prints how they ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    whole = samples()
    ends: Counter[str] = Counter()
    bad = []
    with Worker() as worker:
        for case in range(given.cases):
            number, seed = case % len(whole), given.seed * 1_000_003 + case
            ended = worker.ask("read", str(number), str(seed))
            end = WORDS.get(ended.end, "tracebacks")
            ends[end] += 1
            if end not in ("read", "refused"):
                bad.append(f"{whole[number].name}, seed {seed}: {ended.end} {ended.err[-300:]}")
    counted = {**dict.fromkeys(("read", "refused", "tracebacks", "hangs", "aborts"), 0), **ends}
    print(
        f"{given.cases} mutated files: "
        + ", ".join(f"{count} {end}" for end, count in counted.items())
    )
    print("\n".join(bad[:20]))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
