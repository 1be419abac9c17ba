"""tasklm on two CPU cores beside the cheap things that people reach for: real tasks × minutes.

    python benchmarks/laptop.py --work /tmp/bench --data tasks/ --corpus texts/ --minutes 1,5,20
    python benchmarks/laptop.py --prepare /tmp/carry --data tasks/ --corpus texts/ --passages 45000

Each task has tasklm at each budget, with the baselines of its score table, and four peers, which are
contestants of `tasklm compare`: hashed word embeddings, static vectors of the corpus, and with
--downloaded a pretrained sentence model, as it is and fine-tuned. The same command goes on where it
was stopped. `--prepare` only writes the tasks and a corpus, small enough to carry to
another machine, and says how to name them there.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arguments import some_of
from laptop_runs.cells import OURS, PEERS, Cell, Outcome, column_of, columns
from laptop_runs.data import METRICS, cut_corpus, prepare_task
from laptop_runs.report import line, markdown
from laptop_runs.running import run_tasks
from tasklm.errors import RunError, TaskLMError
from tasklm.storage.files import read_json, write_json, write_text

_SETTINGS = ("labels", "whole", "scored", "passages", "extra")  # of which results hold
_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"


def main() -> None:
    """Prepares the tasks, runs the cells that are missing, and prints the page."""
    options = _options()
    if options.prepare is not None:
        print(_prepared(options, options.prepare))
        return
    results = Results(options)
    tasks = [[cell for cell in cells if not results.has(cell)] for cells in _cells(options)]
    run_tasks(tasks, options.at_once, options.seconds, options.work, results.take)
    results.write()
    print(results.page())


class Results:
    """The outcomes so far, written whenever one is added; those of an earlier run come first."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._lock = options, threading.Lock()
        self._settings = {name: getattr(options, name) for name in _SETTINGS}
        self._file = options.work / "laptop.json"
        self.outcomes = self._earlier()

    def _earlier(self) -> list[Outcome]:
        """What a run that was stopped had; what failed is run again."""
        if not self._file.exists():
            return []
        values = read_json(self._file)
        if values["settings"] != self._settings:
            other = ", ".join(f"{name} {value}" for name, value in values["settings"].items())
            raise RunError(f"{self._file} is of other settings: {other}. Name another --work.")
        outcomes = [Outcome(**outcome) for outcome in values["cells"]]
        return [outcome for outcome in outcomes if outcome.failed in ("", "-")]

    def has(self, cell: Cell) -> bool:
        """Whether there is an outcome of a cell."""
        return any((one.task, one.column) == (cell.task, cell.column) for one in self.outcomes)

    def take(self, outcome: Outcome) -> None:
        """Adds an outcome, writes all and prints a line."""
        with self._lock:
            self.outcomes.append(outcome)
            of_task = [other for other in self.outcomes if other.task == outcome.task]
            print(line(outcome, of_task), flush=True)
            self.write()

    def write(self) -> None:
        """Writes results and page to the work folder and, where wanted, to the documentation."""
        cells = [outcome.to_dict() for outcome in self._ordered()]
        for folder in [self._options.work, *([_PAGES] if self._options.write else [])]:
            write_json(folder / "laptop.json", {"settings": self._settings, "cells": cells})
            write_text(folder / "laptop.md", self.page())

    def page(self) -> str:
        """The page of what there is."""
        return markdown(self._ordered(), self._options.minutes, self._settings)

    def _ordered(self) -> list[Outcome]:
        """The outcomes by task, in the order of the list; the runs of a task by their budgets."""
        order = [column_of(budget) for budget in sorted(self._options.minutes)]

        def place(outcome: Outcome) -> tuple[int, int]:
            column = outcome.column
            return list(METRICS).index(outcome.task), order.index(column) if column in order else -1

        return sorted(self.outcomes, key=place)


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--work", type=Path, help="folder for runs and results; what it has is not run again")
    add("--data", type=Path, required=True, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--corpus", nargs="+", required=True, help="files, folders or globs of raw text")
    add("--tasks", type=some_of(list(METRICS)), default=list(METRICS), help="names, with commas")
    add("--minutes", type=_budgets, default=[1.0, 5.0, 20.0], help="budgets, joined by commas")
    add("--labels", type=int, help="about so many training examples, evenly spread; default: all")
    add("--whole", type=int, default=0, help="tasks with so many examples stay whole with --labels")
    add("--scored", type=int, default=5000, help="test examples at most, evenly spread")
    add("--passages", type=int, help="so many texts of the corpus, evenly spread; default: all")
    add("--downloaded", type=Path, help="folder of all-MiniLM-L6-v2: see requirements.txt")
    add("--extra", default="", help='further options of tasklm fit: --extra="--finetune.seeds 1"')
    add("--at-once", type=int, default=1, help="tasks at once, each on cores of its own")
    add("--cores", type=int, default=2, choices=(1, 2), help="of each task")
    add("--columns", type=some_of([OURS, *PEERS]), default=[OURS, *PEERS], help="run these alone")
    add("--seconds", type=float, default=1e9, help="no cell is begun after that")
    add("--prepare", type=Path, help="only write tasks and corpus to this folder, to be carried")
    add("--write", action="store_true", help="also write the page of the documentation")
    options = parser.parse_args()
    if (options.work is None) == (options.prepare is None):
        parser.error("name either --work or --prepare")
    if options.prepare is not None and not options.passages:
        parser.error("--prepare needs --passages")
    if min(options.at_once, options.scored, options.labels or 1, options.passages or 1) < 1:
        parser.error("--at-once, --scored, --labels and --passages are 1 at least")
    if options.work is not None:
        options.work = options.work.resolve()
    return options


def _budgets(text: str) -> list[float]:
    minutes = [float(word) for word in text.split(",")]
    if min(minutes) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: minutes are above 0")
    return minutes


def _prepared(options: argparse.Namespace, folder: Path) -> str:
    """Writes tasks and corpus to a folder, unless it has them, and says how large they are."""
    for name in options.tasks:
        _prepare_task(options, folder / "tasks" / name)
    file = folder / "corpus" / "passages.jsonl.gz"
    if options.passages and not file.exists():
        cut_corpus(options.corpus, options.passages, file)
    size = sum(file.stat().st_size for file in folder.rglob("*.jsonl.gz"))
    return f"{size / 1e6:.1f} MB: --data {folder / 'tasks'} --corpus {folder / 'corpus'}"


def _prepare_task(options: argparse.Namespace, folder: Path) -> None:
    about = {"labels": options.labels, "whole": options.whole, "scored": options.scored}
    done = folder / "prepared.json"
    if not done.exists() or read_json(done) != about:
        prepare_task(
            options.data / folder.name, folder, options.labels, options.scored, options.whole
        )
        write_json(done, about)


def _cells(options: argparse.Namespace) -> list[list[Cell]]:
    """The cells of each task: tasklm's budgets from the shortest on, then the peers."""
    _prepared(options, options.work)
    corpus: Sequence[str] = [str(options.work / "corpus")] if options.passages else options.corpus
    longest = max(options.minutes)
    budgets: dict[str, Any] = {column_of(budget): budget for budget in options.minutes}
    downloaded = str(options.downloaded.resolve()) if options.downloaded else ""

    def cell(task: str, column: str) -> Cell:
        minutes = budgets.get(column, longest)
        run = options.work / "runs" / f"{task}-{minutes:g}"
        folder = str(options.work / "tasks" / task)
        more = (tuple(corpus), minutes, options.extra, options.cores, downloaded)
        return Cell(task, column, METRICS[task], folder, str(run), *more)

    names = [
        name
        for name in columns(options.minutes, bool(downloaded))
        if name.split()[0] in options.columns
    ]
    return [[cell(task, column) for column in names] for task in options.tasks]


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
