"""Real tasks of every kind, from scratch with one corpus, each by the whole flow: scores beside the
cheap baselines, as one table.

    python benchmarks/kinds.py --work /tmp/bench --tasks tasks/ --corpus texts/ --workers 4 --write
    python benchmarks/kinds.py --work /tmp/bench --tasks tasks/ --corpus texts/ --only SST-2,STS-B
    --set model.layers=2

kinds.toml lists the tasks and their recipes; `--set` changes them all. Every task is a run folder
of its own in the work folder. The same command continues what was cut off and skips what is done;
`--merge` takes over what earlier commands found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kind_runs.report import markdown
from objective_runs.folders import settings_of, write_recipe
from objective_runs.options import setting
from objective_runs.running import Deadline, circumstances, each_at_once, run_verb
from tasklm.errors import RunError, TaskLMError
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.recipe.toml import absolute
from tasklm.storage.files import digest, read_json, require_file, write_json, write_text
from tasklm.tasks.readers.splits import resolved

_HERE = Path(__file__).resolve().parent
_PAGES = _HERE.parent / "docs" / "benchmarks"


def main() -> None:
    """Runs the tasks, joins them with earlier results and prints the page."""
    options = _options()
    deadline, recipes = Deadline(options.limit), _recipes(options)
    found: dict[str, Any] = {}
    for file in options.merge:
        found |= read_json(require_file(file, "Name another file with --merge."))["tasks"]
    jobs = []
    for name, recipe in recipes.items():
        if "failed" in found.get(name, {"failed": ""}):
            found[name] = {"failed": "not run yet"}
            jobs.append((name, _job(options.work / _folder(name), recipe, options, deadline)))
    for name, wrong in each_at_once(jobs, options.workers):
        found[name] = (
            {"failed": wrong} if wrong else _found_in(options.work / _folder(name), recipes[name])
        )
        print(f"{name}: {wrong or 'done'}", file=sys.stderr, flush=True)
        write_json(options.work / "kinds.json", {"tasks": found})
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / "kinds.json", {"tasks": found})
        write_text(folder / "kinds.md", markdown(found))
    print(markdown(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for runs and results, which are kept there"
    )
    parser.add_argument(
        "--tasks", type=Path, required=True, help="folder that the files of the tasks are in"
    )
    parser.add_argument(
        "--corpus", nargs="+", required=True, help="files, folders or globs of raw text"
    )
    parser.add_argument(
        "--cases",
        type=Path,
        default=_HERE / "kinds.toml",
        help="list of the tasks; default: kinds.toml",
    )
    parser.add_argument("--only", help="names of tasks, joined by commas; default: all")
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        help="a key of the recipe, for all: model.layers=2",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="runs at once; with more than one, seconds are no fair comparison",
    )
    parser.add_argument(
        "--limit",
        type=float,
        help="seconds after which no run is started and those under way are stopped",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        default=[],
        help="kinds.json files: what they hold is not done again",
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks/kinds.md and .json"
    )
    options = parser.parse_args()
    if options.workers < 1:
        raise RunError("--workers is 1 at least")
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def _recipes(options: argparse.Namespace) -> dict[str, Recipe]:
    """The recipe of every task that is asked for; each has its kind and columns filled in."""
    with options.cases.open("rb") as file:
        listed = tomllib.load(file)
    names = options.only.split(",") if options.only else list(listed["tasks"])
    if unknown := [name for name in names if name not in listed["tasks"]]:
        raise RunError(
            f"no task is called {', '.join(unknown)}; choose from {', '.join(listed['tasks'])}"
        )
    threads = max(1, len(os.sched_getaffinity(0)) // options.workers)
    machine = {
        "hardware.cache": str(options.work / "cache"),
        "hardware.threads": threads,
        "data.corpus": options.corpus,
    }
    recipes = {}
    for name in names:
        case = listed["tasks"][name]
        files = {
            split: options.tasks / case[split]
            for split in ("train", "dev", "test")
            if split in case
        }
        paths = {
            f"data.{split}": str(require_file(path, "Name another folder with --tasks.").resolve())
            for split, path in files.items()
        }
        asked = {
            "model.size": "tiny",
            **listed["recipe"],
            **case.get("set", {}),
            **dict(options.set),
            **machine,
            **paths,
        }
        recipe = absolute(from_dict(with_overrides({}, asked)))
        recipes[name] = recipe.changed(data=to_dict(Recipe(data=resolved(recipe.data)))["data"])
    return recipes


def _folder(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _job(
    folder: Path, recipe: Recipe, options: argparse.Namespace, deadline: Deadline
) -> Callable[[], None]:
    """The run of one task, which is skipped when its folder holds it."""
    key = digest(
        {section: values for section, values in to_dict(recipe).items() if section != "hardware"}
    )
    about = circumstances(options.workers)

    def job() -> None:
        done = folder / "done.json"
        if not done.exists() or read_json(done)["key"] != key:
            write_recipe(folder, recipe)
            run_verb("evaluate", folder, recipe.hardware.threads, deadline)
            write_json(done, {"key": key, "about": about})

    return job


def _found_in(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """What a complete run found: the rows of its score table, its sizes, and what its training
    cost.
    """
    scores = read_json(folder / "scores.json")
    stage1 = read_json(folder / "stage1" / "summary.json")
    stage2 = [
        read_json(seed / "summary.json") for seed in sorted((folder / "stage2").glob("seed-*"))
    ]
    rows = [
        {name: row[name] for name in ("name", "kind", "dev", "test", "metrics", "flops_exact")}
        for row in scores["rows"]
    ]
    return {
        "kind": recipe.data.kind,
        "metric": scores["metric"],
        "examples": {split: scores["data"].get(split, 0) for split in ("train", "dev", "test")},
        "rows": rows,
        "seconds": {
            "stage 1": stage1["seconds"],
            "stage 2": sum(float(one["seconds"]) for one in stage2),
        },
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings_of(recipe).items()
        },
        "about": read_json(folder / "done.json")["about"],
    }


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
