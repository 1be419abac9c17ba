"""One model for several tasks: alone, together, and taught by the models of single tasks.

    python benchmarks/several_tasks.py --work /tmp/bench --data tasks/ --corpus texts/ \
        --recipe recipes/gpu-minutes.toml --seeds 5 --extra="--budget.flops 3e16" \
        --several="--finetune.epochs 12 --finetune.batch 128 --finetune.layer_decay 0.9"

Prints the tables of the chapter on BAM (arXiv 1907.04829): strategies (3.1), then fine-tuned on
each task (3.3), what the best of them needs (3.4), and what helps RTE (3.5). All models begin with
one stage 1 that has read text alone, or with --stage1 own each with its own. --several has options
of stage 2 for models of several tasks alone: the thesis trains these for twice the epochs (6, not
3), with four times the batch (128, not 32) and twice the rate. The same command goes on where it
was stopped.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from arguments import parser_of_runs, require_same, settings_of, some_of
from several_runs import plan
from several_runs.data import TASKS, Cut, prepare, source_of
from several_runs.report import Page
from several_runs.running import is_done, minutes_of, run_all, scores_of
from tasklm.errors import TaskLMError
from tasklm.storage.files import write_json, write_text

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
_NAME = "several-tasks"
# of the runs
_SETTINGS = ("tasks", "seeds", "labels", "scored", "stage1", "extra", "several", "recipe")


def main() -> None:
    """Prepares the tasks, runs what is missing and prints the page."""
    options = _options()
    try:
        _run(options)
    except TaskLMError as error:
        raise SystemExit(f"{error}") from None


def _run(options: argparse.Namespace) -> None:
    require_same(options.work / f"{_NAME}.settings.json", settings_of(options, _SETTINGS))
    cut = Cut(options.labels, options.scored)
    data = prepare(options.data, options.tasks, options.work / "data", cut)
    for name, about in data.items():
        own, across = about["dropped"]["own"], about["dropped"]["across"]
        print(f"{name}: {about['examples']}; dropped {own} (own), {across} (other tasks')")
    settings = plan.Settings(
        options.work,
        options.corpus,
        options.recipe,
        options.seeds,
        tuple(shlex.split(options.extra)),
        tuple(shlex.split(options.several)),
    )
    runs = plan.planned(options.tables, options.tasks, options.stage1 == "shared")
    failed = run_all(runs, settings, options.at_once, options.seconds)
    _write(options, data, runs, failed)


def _write(
    options: argparse.Namespace,
    data: dict[str, Any],
    runs: list[plan.Planned],
    failed: list[str],
) -> None:
    """Writes the record and the page to the work folder and, where wanted, the documentation."""
    done = [run for run in runs if is_done(run, options.work)]
    record = {
        "settings": {**settings_of(options, _SETTINGS), "tables": options.tables},
        "data": data,
        "runs": {run.name: scores_of(run, options.work) for run in done if run.name != plan.BASE},
        "minutes": {run.name: minutes_of(run, options.work) for run in done},
        "failed": failed,
    }
    page = Page(record).markdown()
    print(page)
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / f"{_NAME}.json", record)
        write_text(folder / f"{_NAME}.md", page)


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    add(
        "--tasks", type=some_of(list(TASKS)), help="names, joined by commas; default: all there are"
    )
    add("--seeds", type=int, default=5, help="of stage 2 of every model")
    add("--tables", type=some_of(plan.TABLES), default=["3.1", "3.4", "3.5"], help="with commas")
    add("--stage1", choices=("shared", "own"), default="shared", help="one for all, or one each")
    add("--labels", type=int, help="training examples of each task, by hash; default: all")
    add("--scored", type=int, help="examples of dev and of test, by hash; default: all")
    add("--several", default="", help="options of stage 2 for models of several tasks alone")
    add("--at-once", type=int, default=1, help="runs at once")
    add("--seconds", type=float, default=1e9, help="no run is begun after that")
    options = parser.parse_args()
    options.work, options.data = options.work.resolve(), options.data.resolve()
    options.recipe = options.recipe.resolve() if options.recipe else None
    if options.tasks is None:
        options.tasks = [name for name in TASKS if source_of(options.data, name) is not None]
    if len(options.tasks) < 2:
        parser.error(f"two tasks or more are needed; {options.data} has {options.tasks}")
    if min(options.seeds, options.at_once, options.labels or 1, options.scored or 1) < 1:
        parser.error("--seeds, --at-once, --labels and --scored are 1 at least")
    for given in (options.extra, options.several):
        if len(shlex.split(given)) % 2:
            parser.error(f"an option lacks its value: {given}")
    several = shlex.split(options.several)
    if plan.for_stage2(several) != several:
        parser.error(f"--several has options of stage 2 ({', '.join(plan.OWN)}): {options.several}")
    return options


if __name__ == "__main__":
    main()
