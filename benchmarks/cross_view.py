"""Text without labels: the tables and figures of cross-view training (arXiv 1809.08370).

    python benchmarks/cross_view.py --work /tmp/bench --data tasks/ --corpus texts/ \
        --recipe recipes/cvt-tagging-minutes.toml --tasks chunks,names,tags,trees \
        --shares 1,5,10,25,50,100 --seeds 3 --steps 2000 --at-once 4 --seconds 1500

--tables: shares (dev by the share of labels, for every student), text (--text: which raw text),
widths (dev by --widths), learning (dev against train while learning), 4.3 (one model of several
tasks), 4.4 (which views), 4.5 (features that do not learn). Tasks are those of cross_view.toml, or
folders of --data. A few processes train one run after another. The same command goes on where it
was stopped; the page has all results that the work folder has (--seconds 0: begin no run).
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from arguments import parser_of_runs, require_same, settings_of, some_of
from cross_view_runs.data import TaskFiles, tasks_of
from cross_view_runs.page import STUDENTS, Page
from cross_view_runs.plan import RANDOM, SELECTED, TABLES, Settings, Wanted, planned
from cross_view_runs.running import results_in, run_all
from tasklm.cli.options import overrides_of
from tasklm.errors import TaskLMError
from tasklm.recipe.raw_text import HIDDEN
from tasklm.storage.files import write_json, write_text

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
_NAME = "cross-view"
LOWEST_SHARE = 0.01  # per cent
_OF_RUNS = ("seeds", "steps", "bilm_steps", "extra", "recipe")  # that all runs of a folder share


def main() -> None:
    """Runs what is missing and prints the page."""
    options = _options()
    try:
        _run(options)
    except TaskLMError as error:
        raise SystemExit(f"{error}") from None


def _run(options: argparse.Namespace) -> None:
    require_same(options.work / f"{_NAME}.settings.json", settings_of(options, _OF_RUNS))
    tasks = {task.name: task for task in tasks_of(options.data, options.tasks)}
    wanted = Wanted(
        options.tables,
        list(tasks.values()),
        options.shares,
        options.students,
        options.text,
        options.widths,
    )
    threads = None
    if options.at_once > 1:
        threads = max(1, (os.cpu_count() or 1) // options.at_once)
    settings = Settings(
        options.work,
        options.corpus,
        options.recipe,
        options.seeds,
        overrides_of(shlex.split(options.extra)),
        options.steps,
        options.bilm_steps,
        threads,
    )
    failed = run_all(planned(wanted), settings, tasks, options.at_once, options.seconds)
    _write(options, tasks, failed)


def _write(options: argparse.Namespace, tasks: dict[str, TaskFiles], failed: list[str]) -> None:
    """Writes the record, the page and its figures: to the work folder and, where wanted, the
    documentation.
    """
    record = {
        "settings": settings_of(options, _OF_RUNS),
        "runs": results_in(options.work),
        "failed": failed,
    }
    page = Page(record, {task.name: task.published for task in tasks.values()})
    text = page.markdown()
    print(text)
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / f"{_NAME}.json", record)
        write_text(folder / f"{_NAME}.md", text)
        for name, picture in page.figures.items():
            write_text(folder / name, picture)


def _shares(text: str) -> list[float]:
    """Shares of the labels in per cent, joined by commas."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers joined by commas") from None
    if not all(LOWEST_SHARE <= share <= 100 for share in shares):
        raise argparse.ArgumentTypeError(f"shares are from {LOWEST_SHARE} to 100 per cent")
    return shares


def _texts(text: str) -> list[str]:
    """Methods of selection, hidden, or files that are there, joined by commas."""
    texts = []
    for part in text.split(","):
        if part not in (SELECTED, RANDOM, HIDDEN):
            if not Path(part).is_file():
                raise argparse.ArgumentTypeError(f"{part!r} is no file, nor {SELECTED}, {RANDOM}")
            part = str(Path(part).resolve())
        texts.append(part)
    return texts


def _widths(text: str) -> list[int]:
    """Widths, joined by commas."""
    return [int(part) for part in text.split(",")]


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    students = list(STUDENTS)
    add("--tasks", type=lambda text: text.split(","), required=True, help="joined by commas")
    add("--tables", type=some_of(TABLES), default=["shares"], help="joined by commas")
    add("--shares", type=_shares, default=[1.0, 5.0, 10.0, 25.0, 50.0, 100.0], help="per cent")
    add("--students", type=some_of(students), default=students, help="of the table shares")
    add("--text", type=_texts, default=[SELECTED, RANDOM], help="bm25, random, hidden or a FILE")
    add("--widths", type=_widths, default=[64, 128, 256], help="of the encoder")
    add("--seeds", type=int, default=3, help="of stage 2 of every model")
    add("--steps", type=int, help="on labels in stage 2, whatever the share; default: epochs")
    add("--bilm-steps", type=int, default=2000, help="of stage 1 of the language models of 4.5")
    add("--at-once", type=int, default=1, help="processes, each with a run")
    add("--seconds", type=float, default=1e9, help="no run is begun after that")
    options = parser.parse_args()
    options.work, options.data = options.work.resolve(), options.data.resolve()
    options.recipe = options.recipe.resolve() if options.recipe else None
    if min(options.seeds, options.at_once) < 1:
        parser.error("--seeds and --at-once are 1 at least")
    return options


if __name__ == "__main__":
    main()
