"""All hostile folders of the tests, opened one after the other: how many are refused in words, and
what else happens.

    python benchmarks/hostile_folders.py

A folder is a good one (a model of any kind, an ONNX export, a language model, a checkpoint) with
one change: numbers that no encoder can have, weights that are none, named pipes, tokenizers that
would fill the memory. Each is opened by `tasklm predict`, or as a run opens `train.start`, in a
process with 2 GiB of memory and two minutes. The exit code is 1 where anything but a clear refusal,
or an answer where a change does no harm, happened.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the generator stands in the tests

from tests.conftest import sentences
from tests.hostile.folders import everything
from tests.hostile.good_folders import write_bases
from tests.hostile.test_folders import end_of, opened
from tests.hostile.workers import Worker

from tasklm.recipe.model_sections import Tokens
from tasklm.tokens.tokenizer import train_vocabulary


def main() -> None:
    """Opens all of them and prints how they ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="folders whose names hold this text")
    parser.add_argument(
        "--verbose", action="store_true", help="print every folder and what was words"
    )
    given = parser.parse_args()
    ends: Counter[str] = Counter()
    bad = []
    with tempfile.TemporaryDirectory() as scratch, Worker() as worker:
        bases = Path(scratch) / "bases"
        bases.mkdir()
        write_bases(bases, train_vocabulary([sentences(500)], Tokens(), 300))
        for number, one in enumerate(everything()):
            if given.only not in one.name:
                continue
            ended = opened(one, one.make(bases, Path(scratch) / str(number)), worker)
            end = end_of(ended)
            ends[end.partition(":")[0]] += 1
            if end not in one.ends:
                bad.append(f"{one.name}: {end}")
            if given.verbose:
                print(f"{one.name} → {end}: {ended.err.strip()[:300]}")
    print(
        f"{sum(ends.values())} hostile folders: "
        + ", ".join(f"{count} {end}" for end, count in ends.most_common())
    )
    print("\n".join(bad) if bad else "no traceback, no hang, no abort, no answer that is none")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
