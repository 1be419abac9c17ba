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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arguments import parser_of_runs
from tasklm.storage.files import read_json, write_json, write_text

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = _ROOT / "docs" / "benchmarks"


@dataclass(frozen=True)
class Result:
    """The scores of a task, mean over seeds, in points."""

    task: str
    metric: str
    single: float
    ensemble: float
    student: float
    small_alone: float
    small_taught: float
    p: float  # of the difference between the two small ones

    @property
    def kept(self) -> float | None:
        """The share of the ensemble's gain that the student of its size has; None without one."""
        gain = self.ensemble - self.single
        return (self.student - self.single) / gain if gain > 0 else None


def main() -> None:
    """Runs what is missing of each task and prints the page."""
    options = _options()
    with ThreadPoolExecutor(options.at_once) as pool:
        results = list(pool.map(lambda name: _task(name, options), options.tasks.split(",")))
    page = markdown(results, options)
    print(page)
    values = [vars(result) for result in results]
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / "distillation.json", values)
        write_text(folder / "distillation.md", page)


def _options() -> argparse.Namespace:
    parser = parser_of_runs(__doc__)
    add = parser.add_argument
    add("--tasks", default="chemprot,scierc_rel,acl_arc", help="names, joined by commas")
    add("--seeds", type=int, default=10, help="of stage 2, that teach together")
    add("--students", type=int, default=3, help="seeds of each student")
    add("--layers", type=int, default=6, help="of the small model")
    add("--width", type=int, default=256, help="of the small model")
    add("--at-once", type=int, default=1, help="tasks at once")
    options = parser.parse_args()
    options.work = options.work.resolve()
    return options


def _task(name: str, options: argparse.Namespace) -> Result:
    """The three runs of a task, and what their score tables say."""
    folder, data = options.work / name, options.data / name
    files = {split: data / f"{split}.jsonl.gz" for split in ("train", "dev", "test")}
    recipe = ["--recipe", str(options.recipe)] if options.recipe else []
    held = ["--dev", str(files["dev"]), "--test", str(files["test"])]
    first = ["fit", str(files["train"]), *held, "--corpus", options.corpus, *recipe]
    first += ["--finetune.seeds", str(options.seeds), "--evaluate.ensemble", "true"]
    first += ["--data.leaks", "drop", *shlex.split(options.extra)]
    teacher = _run(first, folder / "teacher")
    students = ["--finetune.seeds", str(options.students)]
    same = ["--train.start", str(folder / "teacher" / "stage1"), "--train.steps", "0"]
    student = _run(["distill", str(folder / "teacher"), *same, *students], folder / "student")
    shape = ["--model.layers", str(options.layers), "--model.width", str(options.width)]
    words = ["distill", str(folder / "teacher"), *shape, *students]
    small = _run([*words, "--compare", "no-teacher"], folder / "small")
    alone = _row(small, "ablation")
    return Result(
        name,
        teacher["metric"],
        _points(_row(teacher, "ours")),
        _points(_row(teacher, "ensemble")),
        _points(_row(student, "ours")),
        _points(alone),
        _points(_row(small, "ours")),
        alone["against"]["p"],
    )


def _run(words: Sequence[str], out: Path) -> dict[str, Any]:
    """Runs a verb of tasklm, unless the folder has its scores, and reads them."""
    if not (out / "scores.json").exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        words = [sys.executable, "-m", "tasklm", *words, "--out", str(out)]
        with out.with_name(f"{out.name}.txt").open("w", encoding="utf-8") as log:
            subprocess.run(words, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    scores: dict[str, Any] = read_json(out / "scores.json")
    print(json.dumps({"run": str(out), "verdict": scores["verdict"]}), flush=True)
    return scores


def _row(scores: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(row for row in scores["rows"] if row["kind"] == kind)


def _points(row: dict[str, Any]) -> float:
    return 100 * float(row["test"]["mean"])


def markdown(results: Sequence[Result], options: argparse.Namespace) -> str:
    """The page."""
    small = f"{options.layers} × {options.width}"
    lines = [
        "# What an ensemble teaches one model",
        "",
        "Written by `benchmarks/distillation.py`.",
        "",
        f"| task | metric | one seed | {options.seeds} seeds together | taught by them | gain kept "
        f"| {small} alone | {small} taught | p |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        kept = "–" if one.kept is None else f"{one.kept:.0%}"
        lines.append(
            f"| {one.task} | {one.metric} | {one.single:.1f} | {one.ensemble:.1f} "
            f"| {one.student:.1f} | {kept} | {one.small_alone:.1f} | {one.small_taught:.1f} "
            f"| {one.p:.3f} |"
        )
    notes = (
        f"Scores on test, × 100: of one seed and of students the mean over seeds ({options.students}"
        " of each student). “Gain kept”: how much of what all seeds together have over one of them"
        " the student of the same size has. p: paired difference between the two small models,"
        " resampled over test examples and seeds."
    )
    return "\n".join([*lines, "", notes, ""])


if __name__ == "__main__":
    main()
