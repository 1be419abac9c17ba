"""Labels that `tasklm label-next` chooses, beside as many random ones, on real tasks.

    python benchmarks/label_next.py --data tasks/ --work /tmp/label-next --draws 8 --write

The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from arguments import some_of
from label_runs.cases import Case, case_of
from label_runs.report import markdown
from laptop_runs.data import METRICS, prepare_task, read_task
from tasklm.errors import TaskLMError
from tasklm.storage.files import read_json, write_json, write_text

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
    """Makes the draws that are missing and prints the page."""
    options = _options()
    file = options.work / "label-next.json"
    cases = [Case(**one) for one in read_json(file)["cases"]] if file.exists() else []
    made = {(case.task, case.draw) for case in cases}
    for draw in range(options.draws):
        for name in options.tasks:
            if (name, draw) in made:
                continue
            folder = options.work / "tasks" / name
            if not folder.exists():
                prepare_task(options.data / name, folder, None, SCORED)
            data, splits = read_task(folder)
            case = case_of(name, data.kind, splits, METRICS[name], draw)
            print(f"{name}, draw {draw}: {case.before:.1f}, {case.gain:+.1f}", flush=True)
            cases.append(case)
            write_json(file, {"cases": [one.to_dict() for one in cases]})
    cases.sort(key=lambda case: (list(METRICS).index(case.task), case.draw))
    page = markdown(cases)
    if options.write:
        write_json(_PAGES / "label-next.json", {"cases": [case.to_dict() for case in cases]})
        write_text(_PAGES / "label-next.md", page)
    print(page)


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--work", type=Path, required=True, help="folder for cut tasks and results")
    add("--tasks", type=some_of(list(METRICS)), default=list(TASKS), help="names, with commas")
    add("--draws", type=int, default=8, help="of labels to start with, for each task")
    add("--write", action="store_true", help="also write the page of the documentation")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
