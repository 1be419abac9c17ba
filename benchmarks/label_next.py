"""Labels that `tasklm label-next` chooses, beside as many random ones, on real tasks; and forecasts
of what twice the labels bring.

    python benchmarks/label_next.py --data tasks/ --work /tmp/label-next --draws 8 --twice --write

The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from arguments import some_of
from label_runs.cases import Case, Doubling, case_of, doubling_of
from label_runs.report import markdown
from laptop_runs.data import METRICS, prepare_task, read_task
from tasklm.errors import TaskLMError
from tasklm.storage.files import read_json, write_json, write_text
from tasklm.tasks.examples import Splits

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
TASKS = (
    "agnews",
    "imdb",
    "chemprot",
    "scierc_rel",
    "nicta_piboso",
    "glue_sst2",
    "sick_entail",
    "amazon_helpfulness_lite",
)
SCORED = 2500  # test examples, at most


def main() -> None:
    """Makes what is missing and prints the page."""
    options = _options()
    file = options.work / "label-next.json"
    before = read_json(file) if file.exists() else {}
    cases = [Case(**one) for one in before.get("cases", ())]
    doublings = [Doubling(**one) for one in before.get("doublings", ())]
    for draw in range(options.draws):
        for name in options.tasks:
            if any((case.task, case.draw) == (name, draw) for case in cases):
                continue
            kind, splits = _task(options, name)
            case = case_of(name, kind, splits, METRICS[name], draw)
            print(f"{name}, draw {draw}: {case.before:.1f}, {case.gain:+.1f}", flush=True)
            cases.append(case)
            _write(file, cases, doublings)
    for name in options.tasks:
        if options.twice and all(one.task != name for one in doublings):
            kind, splits = _task(options, name)
            doublings.append(doubling_of(name, kind, splits, METRICS[name]))
            print(doublings[-1], flush=True)
            _write(file, cases, doublings)
    cases.sort(key=lambda case: (list(METRICS).index(case.task), case.draw))
    page = markdown(cases, doublings)
    if options.write:
        _write(_PAGES / "label-next.json", cases, doublings)
        write_text(_PAGES / "label-next.md", page)
    print(page)


def _task(options: argparse.Namespace, name: str) -> tuple[str, Splits]:
    """The kind of a task and its examples, of which at most SCORED are for test."""
    folder = options.work / "tasks" / name
    if not folder.exists():
        prepare_task(options.data / name, folder, None, SCORED)
    data, splits = read_task(folder)
    return data.kind, splits


def _write(file: Path, cases: Sequence[Case], doublings: Sequence[Doubling]) -> None:
    values = {"cases": cases, "doublings": doublings}
    write_json(file, {name: [one.to_dict() for one in own] for name, own in values.items()})


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--work", type=Path, required=True, help="folder for cut tasks and results")
    add("--tasks", type=some_of(list(METRICS)), default=list(TASKS), help="names, with commas")
    add("--draws", type=int, default=8, help="of labels to start with, for each task")
    add("--twice", action="store_true", help="also forecast from half of the labels")
    add("--write", action="store_true", help="also write the page of the documentation")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
