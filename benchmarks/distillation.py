"""What an ensemble of seeds teaches one model: of its own size, and of a quarter of it.

    python benchmarks/distillation.py --work /tmp/bench --data tasks/ --corpus texts/ \
        --recipe recipes/gpu-minutes.toml --tasks chemprot,scierc_rel,acl_arc --extra="--budget.flops 6e15"

Each task is trained once with many seeds of stage 2. They teach a student that begins with the same
stage 1, as a born-again network does, and a small one, which is also trained from the labels alone.
The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arguments import parser_of_runs, require_same, settings_of
from distillation_runs.page import Page
from distillation_runs.results import Result, result_of
from tasklm.errors import RunError, TaskLMError
from tasklm.storage.files import read_json, write_json, write_text

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = _ROOT / "docs" / "benchmarks"
_NAME = "distillation"
_SETTINGS = ("seeds", "students", "layers", "width", "passages", "extra")  # of the runs


def main() -> None:
    """Runs what is missing of each task and prints the page."""
    options = _options()
    try:
        _run_all(options)
    except TaskLMError as error:
        raise SystemExit(f"{error}") from None


def _run_all(options: argparse.Namespace) -> None:
    settings = settings_of(options, _SETTINGS)
    require_same(options.work / f"{_NAME}.settings.json", settings)
    with ThreadPoolExecutor(options.at_once) as pool:
        results = list(pool.map(lambda name: _task(name, options), options.tasks.split(",")))
    page = Page(results, settings).markdown()
    print(page)
    record = {"settings": settings, "tasks": [result.to_dict() for result in results]}
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / f"{_NAME}.json", record)
        write_text(folder / f"{_NAME}.md", page)


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    add("--tasks", default="chemprot,scierc_rel,acl_arc", help="names, joined by commas")
    add("--seeds", type=int, default=10, help="of stage 2, that teach together")
    add("--students", type=int, default=3, help="seeds of each student")
    add("--layers", type=int, help="of the small model; default: as many as the teachers have")
    add("--width", type=int, help="of the small model; default: half of the teachers'")
    add("--passages", type=int, default=0, help="selected passages that students also learn from")
    add("--at-once", type=int, default=1, help="tasks at once")
    options = parser.parse_args()
    options.work, options.data = options.work.resolve(), options.data.resolve()
    if options.seeds < 2 or min(options.students, options.at_once) < 1:
        parser.error("--seeds is 2 at least, --students and --at-once are 1 at least")
    return options


def _task(name: str, options: argparse.Namespace) -> Result:
    """The runs of a task: those that teach, a student of their size, and a small one, which is also
    trained without them.
    """
    folder = options.work / name
    _run(_teachers(name, options), folder / "teacher")
    students = ["--finetune.seeds", str(options.students)]
    students += ["--distill.passages", str(options.passages)]
    same = ["--train.start", str(folder / "teacher" / "stage1"), "--train.steps", "0"]
    _run(["distill", str(folder / "teacher"), *same, *students], folder / "student")
    shape = read_json(folder / "teacher" / "stage1" / "config.json")["shape"]
    layers, width = options.layers or shape["layers"], options.width or shape["width"] // 2
    small = ["--model.layers", str(layers), "--model.width", str(width), *students]
    _run(["distill", str(folder / "teacher"), *small, "--compare", "no-teacher"], folder / "small")
    return result_of(name, folder)


def _teachers(name: str, options: argparse.Namespace) -> list[str]:
    """The command that trains the seeds that teach."""
    files = {split: options.data / name / f"{split}.jsonl.gz" for split in ("train", "dev", "test")}
    if not files["train"].is_file():
        raise RunError(f"{files['train']} is missing. Name tasks that --data has.")
    words = ["fit", str(files["train"]), "--corpus", options.corpus]
    for split in ("dev", "test"):
        if files[split].is_file():
            words += [f"--{split}", str(files[split])]
    words += ["--recipe", str(options.recipe)] if options.recipe else []
    words += ["--finetune.seeds", str(options.seeds), "--evaluate.ensemble", "true"]
    return [*words, "--data.leaks", "drop", *shlex.split(options.extra)]


def _run(words: Sequence[str], out: Path) -> None:
    """Runs a verb of tasklm, unless the folder has its scores."""
    if not (out / "scores.json").exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        words = [sys.executable, "-m", "tasklm", *words, "--out", str(out)]
        log = out.with_name(f"{out.name}.txt")
        with log.open("a", encoding="utf-8") as stream:
            done = subprocess.run(words, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        if done.returncode:
            last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
            raise RunError(f"ended with status {done.returncode}, see {log}: {' '.join(last)}")
    scores: dict[str, Any] = read_json(out / "scores.json")
    print(json.dumps({"run": str(out), "verdict": scores["verdict"]}), flush=True)


if __name__ == "__main__":
    main()
