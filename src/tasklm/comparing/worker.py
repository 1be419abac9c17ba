"""A process that does one piece of work of a comparison: `python -m tasklm.comparing.worker FILE`.

It ends when its standard input does: nobody waits for a process whose command was killed.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tasklm.comparing.latency import measure
from tasklm.comparing.training import Order, train
from tasklm.device.machine import set_up
from tasklm.errors import TaskLMError
from tasklm.recipe.schema import Hardware, from_dict
from tasklm.storage.files import read_json, write_json
from tasklm.tasks.readers.labelled_share import labelled_data
from tasklm.tracking import Tracker

FAILED = 3  # status of a process that has written why
ORPHANED = 4


def do(work: dict[str, Any], tracker: Tracker) -> None:
    """Trains a contestant, or measures latency, as plain values say."""
    if "order" in work:
        train(Order.from_dict(work["order"]), tracker)
        return
    recipe = from_dict(work["recipe"])
    machine = set_up(Hardware(device=recipe.hardware.device, threads=recipe.hardware.threads))
    _, splits, _ = labelled_data(recipe)
    models = {}
    for values in work["orders"]:
        order = Order.from_dict(values)
        models[order.entry.title] = order.entry.contestant().load(
            order.job(splits, machine, tracker)
        )
    measured = measure(models, splits.test or splits.dev, tracker)
    replace(measured, device=machine.device.type).write(Path(work["folder"]))


def main() -> None:
    """Reads what to do from a file, and writes what went wrong beside it."""
    file = Path(sys.argv[1])
    threading.Thread(target=end_with_the_command, daemon=True).start()
    work = read_json(file)
    tracker = Tracker(verbose=work["verbose"])
    if work["shows"]:
        tracker = Tracker(Console(stderr=True), verbose=work["verbose"])
    try:
        for module in work["modules"]:  # of contestants that a user has registered
            importlib.import_module(module)
        do(work, tracker.inside(work["title"]))
    except TaskLMError as error:
        write_json(file.with_name("failed.json"), {"problem": str(error)})
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def end_with_the_command() -> None:
    while os.read(0, 1 << 10):
        pass
    os._exit(ORPHANED)


if __name__ == "__main__":
    main()
