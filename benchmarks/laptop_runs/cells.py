"""One cell of the table of laptop.py: a task by tasklm in some minutes, or by one of its peers."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laptop_runs.data import read_task
from tasklm.comparing.entries import Entry
from tasklm.comparing.training import Order, TrainedContestant, train
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, score
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT

PEERS = {  # column → how the page calls it; the last two need --downloaded
    "hashed": "hashed words",
    "static": "static vectors",
    "frozen": "MiniLM + linear",
    "tuned": "MiniLM fine-tuned",
}
DOWNLOADED = ("frozen", "tuned")
OURS = "tasklm"
_SOURCE = Path(__file__).resolve().parents[2] / "src"
_SLACK = 600.0  # seconds beyond five times its budget after which a command is given up


class Failed(Exception):
    """A cell ended without scores; the text says with which words."""


@dataclass(frozen=True)
class Cell:
    """What is run: a column of a task, and all that this takes."""

    task: str
    column: str  # "tasklm 5", or one of PEERS
    metric: str
    folder: str  # of the prepared splits
    run: str  # folder of the command
    corpus: tuple[str, ...]
    minutes: float  # of the command; for peers the time that they may train
    extra: str = ""  # further options of the command
    cores: int = 2  # that it may use
    downloaded: str = ""  # folder of a pretrained model

    @property
    def ours(self) -> bool:
        """Whether tasklm runs it."""
        return self.column.startswith(OURS)

    @property
    def title(self) -> str:
        """The column as a person reads it."""
        return title_of(self.column)


@dataclass(frozen=True)
class Outcome:
    """The scores of a cell, or why there are none."""

    task: str
    column: str
    dev: float = 0.0
    test: float = 0.0
    seconds: float = 0.0  # wall time: of the whole command, or of the peer with all that it chose
    training: float = 0.0  # of these, in the steps of both stages
    about: str = ""  # what dev chose
    examples: int = 0  # of train, as used
    metric: str = ""
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)  # name → dev, test
    cores: int = 2
    failed: str = ""  # "": it was run; "-": the column cannot do the kind of task

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)


def column_of(minutes: float) -> str:
    """The column of a budget."""
    return f"{OURS} {minutes:g}"


def title_of(column: str) -> str:
    """A column as a person reads it."""
    return PEERS.get(column) or f"{column} min"


def run_cell(cell: Cell) -> Outcome:
    """Runs a cell in this process (a command of tasklm in one below it)."""
    try:
        return _command(cell) if cell.ours else _peer(cell)
    except Failed as error:
        return Outcome(cell.task, cell.column, metric=cell.metric, failed=str(error))


def _peer(cell: Cell) -> Outcome:
    """What `tasklm compare` would make of a contestant, in this process."""
    data, splits = read_task(Path(cell.folder))
    task = TASKS.get(data.kind).from_examples(splits.train, Kind())
    entry = Entry(cell.column, cell.column, cell.downloaded if cell.column in DOWNLOADED else "")
    if entry.contestant.against(task):
        raise Failed("-")
    values = {**dataclasses.asdict(data), "corpus": list(cell.corpus)}
    recipe = load(None, {"hardware.threads": cell.cores}).changed(data=values)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train(Order(entry, recipe, cell.metric, 60 * cell.minutes, folder, folder / "runs"), SILENT)
        trained = TrainedContestant.read(folder)

    def reached(split: str, examples: Sequence[Example]) -> float:
        gold = [example.label for example in examples]
        return score(task.metric(cell.metric), gold, trained.labels[split])

    return Outcome(
        cell.task,
        cell.column,
        reached("dev", splits.dev),
        reached("test", splits.test),
        round(trained.cost.seconds, 1),
        about=trained.setting,
        examples=len(splits.train),
        metric=cell.metric,
        cores=cell.cores,
    )


def command_of(cell: Cell) -> list[str]:
    """The words of tasklm's command, which begins as a first run does: with a cache of its own."""
    folder = Path(cell.folder)
    options = {
        "dev": folder / "dev.jsonl.gz",
        "test": folder / "test.jsonl.gz",
        "out": cell.run,
        "minutes": f"{cell.minutes:g}",
        "data.leaks": "drop",
        "evaluate.metric": cell.metric,
        "hardware.device": "cpu",
        "hardware.threads": cell.cores,
        "hardware.cache": Path(cell.run) / "cache",
    }
    words = [sys.executable, "-m", "tasklm", "fit", str(folder / "train.jsonl.gz")]
    words += [word for text in cell.corpus for word in ("--corpus", text)]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*words, *shlex.split(cell.extra)]


def _command(cell: Cell) -> Outcome:
    """Runs the command from nothing, and reads the scores of its run."""
    run = Path(cell.run)
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    paths = [str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    output, started = run.with_name(f"{run.name}.txt"), time.perf_counter()
    with output.open("w", encoding="utf-8") as file:
        try:
            done = subprocess.run(
                command_of(cell),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=5 * 60 * cell.minutes + _SLACK,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"given up after {error.timeout:.0f} s") from None
    seconds = time.perf_counter() - started
    if done.returncode or not (run / "scores.json").exists():
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise Failed((lines or [f"ended with status {done.returncode}"])[-1][:300])
    outcome = outcome_of(cell, run, seconds)
    _tidy(run)
    return outcome


def outcome_of(cell: Cell, run: Path, seconds: float) -> Outcome:
    """What a finished run tells: its scores, those of its baselines, and how long it trained."""
    scores = read_json(run / "scores.json")
    (ours,) = (row for row in scores["rows"] if row["kind"] == "ours")
    baselines = [row for row in scores["rows"] if row["kind"] == "baseline"]
    summaries = [*run.glob("stage1*/summary.json"), *run.glob("stage2*/seed-*/summary.json")]
    return Outcome(
        cell.task,
        cell.column,
        ours["dev"]["mean"],
        ours["test"]["mean"],
        round(seconds, 1),
        round(sum(float(read_json(file)["seconds"]) for file in summaries), 1),
        f"{ours['parameters']:,} weights, {ours['selected_passages']:,} passages",
        scores["data"]["train"],
        scores["metric"],
        {
            row["name"]: {split: row[split]["mean"] for split in ("dev", "test")}
            for row in baselines
        },
        cell.cores,
    )


def _tidy(run: Path) -> None:
    """Deletes what is large and needed no more: all folders."""
    for folder in run.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)


def columns(minutes: Sequence[float], downloaded: bool) -> list[str]:
    """The columns of a table, in the order in which they are run."""
    peers = [name for name in PEERS if downloaded or name not in DOWNLOADED]
    return [*(column_of(budget) for budget in sorted(minutes)), *peers]
