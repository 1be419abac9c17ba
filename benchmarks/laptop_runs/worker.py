"""Runs one cell of laptop.py in a process of its own: python -m laptop_runs.worker CELL OUTCOME."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Holds the process to its cores, runs the cell of a file and writes its outcome to another."""
    spec, report = (Path(word) for word in sys.argv[1:])
    values = json.loads(spec.read_text(encoding="utf-8"))
    cores, cell = values["held"], values["cell"]
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # before torch counts them
    from laptop_runs.cells import Cell, run_cell
    from tasklm.storage.files import write_json

    outcome = run_cell(Cell(**{**cell, "corpus": tuple(cell["corpus"])}))
    write_json(report, outcome.to_dict())


if __name__ == "__main__":
    main()
