"""Where the time of a training step goes on a GPU: every kernel, and where the device waits. For
those who tune the engine.

    python benchmarks/kernels.py --shapes base:256x128,6x384:64x128 --out kernels.md

The loop is the one that `training.py` measures as ours, on made-up text.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from tasklm.errors import RunError, TaskLMError
from tasklm.storage.files import write_text
from training_peers import ours
from training_peers.activity import device_work, markdown
from training_peers.cases import Case, parse_case
from training_peers.text import make_shards
from training_peers.timing import wait_for

_TOKENS, _SEED = 4_000_000, 1


def main() -> None:
    """Watches some steps of each shape and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", required=True, help="SIZE:ROWSxLENGTH,… with a size's name or LAYERSxWIDTH"
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=30_522,
        help="types of tokens; BERT's unless said otherwise",
    )
    parser.add_argument("--warmup", type=int, default=15, help="steps before the profiler watches")
    parser.add_argument("--steps", type=int, default=10, help="steps that it watches")
    parser.add_argument("--out", type=Path, help="file for the tables too")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise RunError("there is no GPU here, whose kernels could be watched")
    page = "\n".join(
        _watched(parse_case(text, options.vocabulary), options.warmup, options.steps)
        for text in options.shapes.split(",")
    )
    print(page)
    if options.out is not None:
        write_text(options.out, page)


def _watched(case: Case, warmup: int, steps: int) -> str:
    device = torch.device("cuda")
    with tempfile.TemporaryDirectory() as folder:
        make_shards(Path(folder), _TOKENS, case.shape.vocabulary, _SEED)
        loop, words = ours.make_loop(
            case.shape,
            case.rows,
            case.length,
            Path(folder),
            case.shape.vocabulary,
            warmup + steps,
            device,
        )
        watching = profile(activities=[ProfilerActivity.CUDA])
        for step, _ in enumerate(loop.run(), 1):
            if step in (warmup, warmup + steps):
                wait_for(device)
                (watching.start if step == warmup else watching.stop)()
    return f"## {case.name}\n\n{words}\n\n{markdown(device_work(watching.events()), steps)}"


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
