"""Forecasts beside what came out, on real tasks; and the gains that they take from recorded runs.

    python benchmarks/forecast.py --data tasks/ --work /tmp/forecast --write
    python benchmarks/forecast.py --refresh

For each task: the linear model's test score, the recorded test score of tasklm after 5 minutes,
and, from half of the labels, the linear model's score with all of them. The same command goes on
where it was stopped. `--refresh` writes gains.json of the package from the tables of the
documentation; for tasks that it has not yet, name --data and --work.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arguments import some_of
from forecast_runs.cases import Case, gain_cases, task_cases
from forecast_runs.records import LAST, forms_in, gains_of
from forecast_runs.report import line, markdown
from laptop_runs.cells import Outcome, column_of
from laptop_runs.data import METRICS, prepare_task, read_task
from tasklm.errors import RunError, TaskLMError
from tasklm.forecasting.forecast import SECONDS
from tasklm.forecasting.gains import form_of, recorded_gains
from tasklm.storage.files import read_json, write_json, write_text

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = _ROOT / "docs" / "benchmarks"
_GAINS = _ROOT / "src" / "tasklm" / "forecasting" / "gains.json"


def main() -> None:
    """Writes the gains, or makes the forecasts that are missing and prints the page."""
    options = _options()
    laptop = read_json(_PAGES / "laptop.json")
    if options.refresh:
        known = forms_in(read_json(_GAINS)) if _GAINS.exists() else {}
        new = functools.partial(_form, options, laptop)
        write_json(_GAINS, gains_of(_ROOT, lambda task: known.get(task) or new(task)))
        print(f"wrote {_GAINS}")
        return
    file = options.work / "forecast.json"
    before = read_json(file)["cases"] if file.exists() else []
    cases = [Case(**case) for case in before]
    gains = recorded_gains()
    for name in options.tasks:
        if not any(case.task == name for case in cases):
            folder, recorded = _prepared(options, laptop, name), recorded_test(laptop, name)
            cases += task_cases(folder, gains, recorded, options.seconds)
            print("\n".join(line(case) for case in cases if case.task == name), flush=True)
            _write(file, options.seconds, cases)
    cases += [*gain_cases(gains, "cpu", "gain"), *gain_cases(gains, "gpu", "gpu gain")]
    page = markdown(cases, options.seconds)
    if options.write:
        _write(_PAGES / "forecast.json", options.seconds, cases)
        write_text(_PAGES / "forecast.md", page)
    print(page)


def recorded_test(laptop: dict[str, Any], task: str) -> dict[str, float]:
    """The recorded score on test of the longer budget, in points; nothing where there is none."""
    outcomes = [Outcome(**cell) for cell in laptop["cells"] if cell["task"] == task]
    whole = {outcome.column: outcome for outcome in outcomes if not outcome.failed}
    last = whole.get(column_of(LAST))
    return {} if last is None else {"test": 100 * last.test}


def _write(file: Path, seconds: float, cases: Sequence[Case]) -> None:
    write_json(file, {"seconds": seconds, "cases": [case.to_dict() for case in cases]})


def _prepared(options: argparse.Namespace, laptop: dict[str, Any], name: str) -> Path:
    """The folder of a task that is cut as the recorded runs had it."""
    folder, settings = options.work / "tasks" / name, laptop["settings"]
    done = folder / "prepared.json"
    if not done.exists():
        cuts = (settings["labels"], settings["scored"], settings["whole"])
        prepare_task(options.data / name, folder, *cuts)
        write_json(done, settings)
    return folder


def _form(options: argparse.Namespace, laptop: dict[str, Any], name: str) -> str:
    """The form of the texts of a task that gains.json has not yet."""
    if options.data is None or options.work is None:
        raise RunError(f"{name} is new. Name --data, where its texts are, and --work.")
    return form_of(read_task(_prepared(options, laptop, name))[1].train)


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--work", type=Path, help="folder for cut tasks and results; what it has is not done again")
    add("--tasks", type=some_of(list(METRICS)), default=list(METRICS), help="names, with commas")
    add("--seconds", type=float, default=SECONDS, help="for each forecast")
    add("--refresh", action="store_true", help="only write gains.json from the recorded tables")
    add("--write", action="store_true", help="also write the page of the documentation")
    options = parser.parse_args()
    if not options.refresh and (options.data is None or options.work is None):
        parser.error("name --data and --work")
    return options


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
