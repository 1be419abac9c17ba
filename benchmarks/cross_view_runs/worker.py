"""A process that trains one run after another: python -m cross_view_runs.worker.

It reads a job in each line, {"recipe": FILE, "folder": FOLDER, "log": FILE} as JSON, and answers
each with a line: {"failed": REASON}, which is empty for a run that came to its end. Torch, kernels
and the device are loaded once for all runs. After an error that is not tasklm's own it ends.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path

from rich.console import Console


def main() -> None:
    """Answers jobs until there are none; what runs print goes to their logs."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed must not be read as an answer
    for line in sys.stdin:
        job = json.loads(line)
        failed, healthy = run(Path(job["recipe"]), Path(job["folder"]), Path(job["log"]))
        print(json.dumps({"failed": failed}), file=answers, flush=True)
        if not healthy:
            return


def run(recipe: Path, folder: Path, log: Path) -> tuple[str, bool]:
    """Trains and scores one run; why it failed, and whether this process may do another."""
    from tasklm.errors import TaskLMError
    from tasklm.pipeline.flow import fit
    from tasklm.recipe.toml import load
    from tasklm.tracking import Tracker

    with log.open("a", encoding="utf-8") as stream:
        try:
            fit(load(recipe), folder, Tracker(Console(file=stream)), until="evaluate")
        except TaskLMError as error:
            stream.write(f"{error}\n")
            return str(error), True
        except Exception as error:
            traceback.print_exc(file=stream)
            return f"{type(error).__name__}: {error}", False
        finally:
            free_memory()
    return "", True


def free_memory() -> None:
    """Gives back what a run held: the next may be another model, and others share the device."""
    torch = sys.modules.get("torch")
    if "torch._dynamo" in sys.modules and torch is not None:
        torch._dynamo.reset()
    gc.collect()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
