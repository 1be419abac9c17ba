"""What sets of labels with a promised coverage come to on real data.

    python benchmarks/label_sets.py --tasks TASKS --work W --page docs/benchmarks/coverage.md

For each task the linear model of words is fitted to at most 3,000 training examples, calibrated on
all of dev and asked for sets that are right in 90 % and 95 % of all cases; all of test, at most
10,000 examples, says how often they are. Where a folder has no test, one half of dev is test. The
tagged sets become sets of several labels: which sorts of names a sentence has.

Files may differ as their sources do, and small ones leave much to chance. So dev and test are also
put together and drawn apart again, at random, 50 times: then they are alike by construction, and
the mean says whether the promise holds where it can.

All choices are compared on dev alone: what orders the classes (LAC, APS, RAPS: thresholds from one
half of dev, measured on the other), what thresholds by class cost and give, whether out-of-fold
answers on train could calibrate too, and what tells strange texts apart (words that are new, or
unlikely letters). Results of each task are kept in W, and a task that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from label_set_runs.data import KINDS, fit, splits_of, texts_of_others
from label_set_runs.measures import result_of
from label_set_runs.page import page_of
from tasklm.tasks.examples import Splits


def main() -> None:
    """Runs what is missing and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=Path, required=True, help="Folder with a folder per task.")
    parser.add_argument("--work", type=Path, required=True, help="Where results are kept.")
    parser.add_argument("--only", default="", help="Names of tasks, comma-separated.")
    parser.add_argument("--page", type=Path, help="The page to write, and a JSON file beside it.")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    names = given.only.split(",") if given.only else list(KINDS)
    every: dict[str, Splits] = {}
    if any(not (given.work / f"{name}.json").exists() for name in names):
        every = {name: splits_of(given.tasks / name, KINDS[name]) for name in names}
    results = []
    for name in names:
        path = given.work / f"{name}.json"
        if not path.exists():
            started = time.monotonic()
            fitted = fit(every[name], KINDS[name])
            result = result_of(name, KINDS[name], fitted, texts_of_others(every, name))
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        results.append(json.loads(path.read_text(encoding="utf-8")))
    page = page_of(results, "python benchmarks/label_sets.py --tasks TASKS --work W")
    print(page)
    if given.page is not None:
        given.page.write_text(page, encoding="utf-8")
        given.page.with_suffix(".json").write_text(
            json.dumps(results, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
