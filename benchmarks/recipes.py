"""Recipes side by side: arms × seeds of stage 1 on a small proxy, by held-out loss and dev score.

    python benchmarks/recipes.py --work /tmp/bench --data tasks/ --tasks chemprot --corpus texts/ \\
        --only mask-30-to-15,decay-10-cautious --seeds 3 --at-once 8 --seconds 500
    python benchmarks/recipes.py … --only mask-30-to-15 --flops 2e16 --seeds 5     # to confirm

The arms are tables of recipe options in benchmarks/recipes.toml, or in the file of --arms; the base
is always run. Text is selected and tokenised once for all arms that read the same. Each arm and
seed is a run folder in the work folder; seeds come one after the other, so that a time limit leaves
whole pairs. The same command continues what was cut off and skips what is done.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arguments import parser_of_runs
from objective_runs import folders
from objective_runs.folders import Text
from objective_runs.running import Deadline, Failed, circumstances, each_at_once, run_verb
from recipe_runs.arms import BASE, Arms, read_arms, recipe_of, text_key
from recipe_runs.report import page_of
from tasklm.artifacts import Artefacts
from tasklm.cli.options import overrides_of
from tasklm.errors import RunError, TaskLMError
from tasklm.recipe.schema import Recipe
from tasklm.storage.files import read_json, require_file, write_json, write_text

_HERE = Path(__file__).resolve().parent
_PAGES = _HERE.parent / "docs" / "benchmarks"
_GPU_SHARE = 0.9  # of a GPU's memory, that the runs at once have together


@dataclass(frozen=True)
class Job:
    """A run: a task, an arm and a seed of stage 1."""

    task: str
    arm: str
    seed: int
    folder: Path
    recipe: Recipe

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.task}/{self.arm}/{self.seed}"


def main() -> None:
    """Runs what is missing and prints the page."""
    options = _options()
    try:
        _run(options)
    except TaskLMError as error:
        sys.exit(str(error))


def _run(options: argparse.Namespace) -> None:
    arms = read_arms(options.arms)
    wanted = _wanted(arms, options.only)
    runs = itertools.product(range(1, options.seeds + 1), options.tasks, wanted)
    jobs = [_job(task, arm, seed, arms, options) for seed, task, arm in runs]
    deadline, about = Deadline(options.seconds), circumstances(options.at_once)
    texts, failed = _texts(jobs, deadline)
    work: list[tuple[str, Callable[[], None]]] = [
        (job.name, _work(job, texts[text_key(job.recipe)], options, deadline))
        for job in jobs
        if text_key(job.recipe) in texts
    ]
    for name, wrong in each_at_once(work, options.at_once):
        print(f"{name}: {wrong or 'done'}", file=sys.stderr, flush=True)
        if wrong:
            failed.append(f"{name}: {wrong}")
    record = {
        "settings": {name: getattr(options, name) for name in ("seeds", "tunings", "extra")},
        "about": about,
        "base": {**arms.base, **_of_all(options)},
        "arms": {name: dict(arms.options(name)) for name in wanted if name != BASE},
        "tasks": _results(jobs, texts),
        "failed": sorted(failed),
    }
    page, name = page_of(record), f"recipes-{_flops_of(jobs[0].recipe):g}"
    print(page)
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / f"{name}.json", record)
        write_text(folder / f"{name}.md", page)


def _wanted(arms: Arms, only: list[str] | None) -> list[str]:
    """The arms to run, the base first."""
    if unknown := [name for name in only or [] if name not in arms.names]:
        raise RunError(f"--only: unknown {', '.join(unknown)}; choose from {', '.join(arms.names)}")
    return [name for name in arms.names if name == BASE or only is None or name in only]


def _of_all(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the command line that all arms share."""
    given: dict[str, Any] = overrides_of(shlex.split(options.extra))
    if options.flops is not None:
        given["budget.flops"] = options.flops
    return given


def _job(task: str, arm: str, seed: int, arms: Arms, options: argparse.Namespace) -> Job:
    """A run with the options of the base, of the command line and of its arm, in this order."""
    remedy = "Name another folder with --data."
    files = {
        f"data.{split}": str(require_file(options.data / task / f"{split}.jsonl.gz", remedy))
        for split in ("train", "dev")
    }
    # with a soup a run is evaluated, on dev alone
    scoring = {"evaluate.baselines": False, "evaluate.bootstrap": 100}
    own = {"train.seed": seed, "train.seeds": 1, "finetune.seeds": max(1, options.tunings)}
    machine = {"hardware.cache": str(options.work / "cache"), "hardware.threads": options.threads}
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory
        machine["hardware.memory"] = _GPU_SHARE * memory / 1e9 / options.at_once
    given = {**files, "data.corpus": [options.corpus], "data.leaks": "drop", **machine}
    given |= {**scoring, **arms.base, **_of_all(options), **arms.options(arm), **own}
    recipe = recipe_of(options.recipe, given)
    folder = options.work / f"{_flops_of(recipe):g}" / task / arm / str(seed)
    return Job(task, arm, seed, folder, recipe)


def _flops_of(recipe: Recipe) -> float:
    if recipe.budget.flops is None:
        raise RunError('the arms have no FLOPs. Give --flops, or "budget.flops" in [base].')
    return recipe.budget.flops


def _texts(jobs: list[Job], deadline: Deadline) -> tuple[dict[str, Text], list[str]]:
    """The selected text of all runs, as tokens, by its key, and what went wrong."""
    texts: dict[str, Text] = {}
    failed = []
    for key, job in {text_key(job.recipe): job for job in reversed(jobs)}.items():
        folder = job.folder.parents[3] / "text" / f"{job.task}-{key}"
        folders.write_recipe(folder, job.recipe.changed(hardware={"threads": None}))
        try:
            if Artefacts(folder).key("tokens") is None:
                run_verb("tokenize", folder, None, deadline)
            texts[key] = folders.made_text(folder, job.recipe)
        except Failed as error:
            failed.append(f"the text of {job.name}: {error}")
    return texts, failed


def _work(
    job: Job, text: Text, options: argparse.Namespace, deadline: Deadline
) -> Callable[[], None]:
    """The run of a job, which is skipped when its folder holds it."""
    about = circumstances(options.at_once)
    verb = "train"
    if options.tunings:
        verb = "evaluate" if job.recipe.finetune.soup else "finetune"

    def work() -> None:
        if not folders.is_done(job.folder, text, job.recipe):
            folders.start_folder(job.folder, text, job.recipe)
            run_verb(verb, job.folder, options.threads, deadline)
            folders.mark_done(job.folder, text, job.recipe, about)

    return work


def _results(jobs: list[Job], texts: dict[str, Text]) -> dict[str, Any]:
    """What all finished runs found, by task, arm and seed."""
    tasks: dict[str, Any] = {}
    for job in jobs:
        task = tasks.setdefault(job.task, {"metric": "", "arms": {}})
        runs = task["arms"].setdefault(job.arm, {})
        text = texts.get(text_key(job.recipe))
        if text is None or not folders.is_done(job.folder, text, job.recipe):
            continue
        stage1 = read_json(job.folder / "stage1" / "summary.json")
        held_out = stage1.get("held_out", {"loss": None})
        tuned = [read_json(path) for path in sorted(job.folder.glob("stage2/seed-*/summary.json"))]
        scores = _soup_in(job.folder) or [one["dev"] for one in tuned]
        runs[str(job.seed)] = {
            **held_out,
            "content": text.about["content"],
            "objective": job.recipe.train.objective,
            "dev": 100 * statistics.fmean(scores) if scores else None,
            **{name: stage1[name] for name in ("steps", "flops", "seconds")},
        }
        task["metric"] = tuned[0]["metric"] if tuned else task["metric"]
    return tasks


def _soup_in(folder: Path) -> list[float]:
    """The dev scores of the mean weights of all fine-tunings, where a run has them."""
    if not (folder / "scores.json").exists():
        return []
    rows = read_json(folder / "scores.json")["rows"]
    return [value for row in rows if row["kind"] == "soup" for value in row["dev"]["values"]]


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    add("--arms", type=Path, default=_HERE / "recipes.toml", help="TOML file of arms")
    add("--only", type=lambda text: text.split(","), help="arms, joined by commas; default: all")
    add("--tasks", type=lambda text: text.split(","), required=True, help="folders of --data")
    add("--seeds", type=int, default=3, help="of stage 1 of every arm")
    add("--tunings", type=int, default=2, help="fine-tunings of every stage 1; 0: none")
    add("--flops", type=float, help="of stage 1, in place of the base's")
    add("--at-once", type=int, default=1, help="runs at once")
    add("--threads", type=int, help="CPU threads of a run; default: the cores shared among them")
    add("--seconds", type=float, help="after that none begins, and those under way are stopped")
    options = parser.parse_args()
    if min(options.seeds, options.at_once) < 1 or options.tunings < 0:
        parser.error("--seeds and --at-once are 1 at least, --tunings 0")
    cores = len(os.sched_getaffinity(0))
    options.threads = options.threads or max(1, cores // options.at_once)
    options.work, options.data = options.work.resolve(), options.data.resolve()
    options.recipe = options.recipe.resolve() if options.recipe else None
    return options


if __name__ == "__main__":
    main()
