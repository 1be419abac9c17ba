"""Where the time of a whole run goes, beside the same work put together from well-known parts.

    python -m pip install -r benchmarks/requirements.txt      # beside tasklm
    python benchmarks/whole_run.py --work W --cases demo --write
    python benchmarks/whole_run.py --work W --cases acl_arc --data TASKS --corpus TEXT
    python benchmarks/whole_run.py --work W --cases chemprot --data TASKS --corpus TEXT      # a GPU
    python benchmarks/whole_run.py --work W --cases none --merge gpu/whole-run.json --write

The two sides take turns, with as many threads on the same cores, and the shortest of the rounds
counts. Results are kept in the work folder after every round; those of a case that is measured again
with the same settings on the same day are added to. Needs transformers 5 and accelerate.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from arguments import some_of
from tasklm.errors import TaskLMError
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump
from tasklm.storage.files import read_json, require_file, write_json, write_text
from training_peers.timing import device_name
from whole_run_peers.cases import CASES, ON_GPU, recipe_of
from whole_run_peers.report import markdown
from whole_run_peers.running import run_peer, run_tasklm

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
_CHANGED = {"steps": "train.steps", "epochs": "finetune.epochs", "seeds": "finetune.seeds"}


def main() -> None:
    """Measures the cases that the command line names and prints the page."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    file = options.work / "whole-run.json"
    merged = [require_file(one, "Name another file with --merge.") for one in options.merge]
    cases: dict[str, Any] = {}
    for earlier in [*merged, *([file] if file.exists() else [])]:
        cases |= read_json(earlier)["cases"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: options.threads])  # of this process and those that it starts
    for case in options.cases:
        recipe = _recipe(case, options)
        about = _about(recipe)
        if cases.get(case, {}).get("about") != about:
            cases[case] = {"about": about, "rounds": []}
        for _ in range(options.rounds):
            cases[case]["rounds"].append(_round(case, recipe, options))
            write_json(file, {"cases": cases})
    page = markdown(cases)
    print(page)
    if options.write:
        write_text(_PAGES / "whole-run.md", page)
        write_json(_PAGES / "whole-run.json", {"cases": cases})


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder for runs and results")
    add("--cases", help=f"from {','.join(CASES)}; none: only --merge. Default by device")
    add("--data", type=Path, help="folder of tasks: NAME/{train,dev,test}.jsonl.gz")
    add("--corpus", help="file or folder of raw text, for all cases but the demo")
    add("--rounds", type=int, default=2, help="times that each side runs")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads")
    add("--steps", type=int, help="steps of stage 1, in place of a case's own")
    add("--epochs", type=int, help="epochs of stage 2, in place of a case's own")
    add("--seeds", type=int, help="fine-tunings, in place of a case's own")
    merge = "files whose cases stay on the page, if not measured here; none named: the docs'"
    add("--merge", type=Path, nargs="*", help=merge)
    add("--write", action="store_true", help="also write the page of the documentation")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    usual = [case for case in CASES if (case in ON_GPU) == gpu]
    names = options.cases or ",".join(usual)
    options.merge = [_PAGES / "whole-run.json"] if options.merge == [] else options.merge or []
    options.cases = [] if names == "none" else some_of(CASES)(names)
    return options


def _recipe(case: str, options: argparse.Namespace) -> Recipe:
    given = {key: getattr(options, name) for name, key in _CHANGED.items()}
    changed = {key: value for key, value in given.items() if value is not None}
    changed["hardware.threads"] = options.threads
    return recipe_of(case, options.work.resolve(), options.data, options.corpus, changed)


def _round(case: str, recipe: Recipe, options: argparse.Namespace) -> dict[str, Any]:
    """One run of each side, in a folder that is empty before and gone afterwards."""
    folder = options.work.resolve() / "runs" / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "recipe.toml"
    write_text(file, dump(recipe))
    sides = {}
    for name, run in (("tasklm", run_tasklm), ("peer", run_peer)):
        sides[name] = run(file, folder / name, options.threads)
        told = f"{sides[name]['wall']:.0f} s, {sides[name]['cpu']:.0f} CPU s"
        print(f"{case}, {name}: {told}", file=sys.stderr, flush=True)
    shutil.rmtree(folder)
    return sides


def _about(recipe: Recipe) -> dict[str, Any]:
    """What was run where; results are added to those with the same."""
    sections = {
        name: values
        for name, values in dataclasses.asdict(recipe).items()
        if name in ("select", "tokens", "model", "train", "finetune")
    }
    keys = {
        "select": ("k", "passages"),
        "tokens": ("vocabulary", "length"),
        "model": ("size", "layers", "width"),
        "train": ("steps", "batch", "rho1"),
        "finetune": ("epochs", "batch", "seeds", "learning_rate"),
    }
    settings = {
        f"{section}.{key}": sections[section][key]
        for section, names in keys.items()
        for key in names
        if sections[section][key] is not None
    }
    gpu = torch.cuda.is_available()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "machine": device_name(torch.device("cuda" if gpu else "cpu")),
        "threads": recipe.hardware.threads,
        "metric": recipe.evaluate.metric,
        "settings": settings,
    }


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
