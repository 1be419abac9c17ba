"""Text without labels: dev scores by the share of labels, for every student of raw text.

    python benchmarks/cross_view.py --work /tmp/bench --data tasks/ --corpus texts/ \
        --tasks chunks,names --shares 1,5,10,25,50,100 --seeds 3 --extra="--train.steps 2000"

A task is a folder of splits that `tasklm fit` reads. For each task and share there is one run
folder: text is selected and stage 1 is trained once, then every student does stage 2. The same
command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from arguments import parser_of_runs, require_same, settings_of, some_of
from cross_view_runs.runs import LOWEST_SHARE, Cell, Settings, result_of, run_all
from cross_view_runs.tables import NONE, page_of
from tasklm.errors import TaskLMError
from tasklm.storage.files import read_json, write_json, write_text
from tasklm.students.base import STUDENTS

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
_NAME = "cross-view"
_OF_RUNS = ("seeds", "extra", "recipe")  # settings that all runs of a work folder share


def main() -> None:
    """Runs what is missing and prints the tables."""
    options = _options()
    try:
        _run(options)
    except TaskLMError as error:
        raise SystemExit(f"{error}") from None


def _run(options: argparse.Namespace) -> None:
    require_same(options.work / f"{_NAME}.settings.json", settings_of(options, _OF_RUNS))
    cells = [Cell(task, share) for task in options.tasks for share in options.shares]
    settings = Settings(
        options.work,
        options.data,
        options.corpus,
        options.recipe,
        options.seeds,
        tuple(shlex.split(options.extra)),
    )
    failed = run_all(cells, options.students, settings, options.at_once, options.seconds)
    tasks: dict[str, Any] = {task: {} for task in options.tasks}
    for cell in cells:
        paths = {student: result_of(cell, student, options.work) for student in options.students}
        tasks[cell.task][f"{cell.share:g}"] = {
            student: read_json(path) for student, path in paths.items() if path.exists()
        }
    about = {
        **settings_of(options, _OF_RUNS),
        "students": options.students,
        "shares": options.shares,
    }
    record = {"settings": about, "tasks": tasks, "failed": failed}
    page = page_of(record)
    print(page)
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / f"{_NAME}.json", record)
        write_text(folder / f"{_NAME}.md", page)


def _shares(text: str) -> list[float]:
    """Shares of the labels in per cent, joined by commas."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers joined by commas") from None
    if not all(LOWEST_SHARE <= share <= 100 for share in shares):
        raise argparse.ArgumentTypeError(f"shares are from {LOWEST_SHARE} to 100 per cent")
    return shares


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    students = [NONE, *STUDENTS.names()]
    add("--tasks", type=lambda text: text.split(","), help="folders of --data; default: all")
    add("--shares", type=_shares, default=[1.0, 5.0, 10.0, 25.0, 50.0, 100.0], help="per cent")
    add("--students", type=some_of(students), default=students, help="joined by commas")
    add("--seeds", type=int, default=3, help="of stage 2 of every model")
    add("--at-once", type=int, default=1, help="folders at once")
    add("--seconds", type=float, default=1e9, help="no run is begun after that")
    options = parser.parse_args()
    options.work, options.data = options.work.resolve(), options.data.resolve()
    options.recipe = options.recipe.resolve() if options.recipe else None
    there = sorted(path.name for path in options.data.iterdir() if path.is_dir())
    options.tasks = options.tasks or there
    unknown = [task for task in options.tasks if task not in there]
    if unknown or not options.tasks:
        parser.error(f"{options.data} has {', '.join(there)}; not there: {', '.join(unknown)}")
    if min(options.seeds, options.at_once) < 1:
        parser.error("--seeds and --at-once are 1 at least")
    return options


if __name__ == "__main__":
    main()
