"""One cell of the table of laptop.py: a task by tasklm in some minutes, or by one of its peers."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laptop_runs.data import read_task
from laptop_runs.goals import KINDS, Chosen, Goal
from tasklm.storage.files import read_json

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
    run: str  # folder of the command, for peers that of the longest budget
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
    data, splits = read_task(Path(cell.folder))
    if data.kind not in KINDS:
        raise Failed("-")
    goal, started = Goal(data.kind, splits, cell.metric), time.perf_counter()
    chosen = _chosen(cell, splits, goal)
    seconds = time.perf_counter() - started
    return Outcome(
        cell.task,
        cell.column,
        chosen.dev,
        chosen.test,
        round(seconds, 1),
        about=chosen.setting,
        examples=len(splits.train),
        metric=cell.metric,
    )


def _chosen(cell: Cell, splits: Any, goal: Goal) -> Chosen:
    """The scores of a peer; its modules are loaded when it is needed."""
    seconds = 60 * cell.minutes
    if cell.column == "hashed":
        from laptop_runs.hashed import hashed_words

        return hashed_words(splits, goal, seconds)
    if cell.column == "static":
        from laptop_runs.vectors import static_vectors

        if not (Path(cell.run) / "tokens").exists():
            raise Failed("there is no run whose text it could count")
        return static_vectors(Path(cell.run), splits, goal)
    from laptop_runs.downloaded import frozen, tuned

    learn = frozen if cell.column == "frozen" else tuned
    return learn(Path(cell.downloaded), splits, goal, seconds)


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
    """Deletes what is large and needed no more: all folders but the tokens, which a peer counts."""
    for folder in run.iterdir():
        if folder.is_dir() and folder.name != "tokens":
            shutil.rmtree(folder)


def columns(minutes: Sequence[float], downloaded: bool) -> list[str]:
    """The columns of a table, in the order in which they are run."""
    peers = [name for name in PEERS if downloaded or name not in DOWNLOADED]
    return [*(column_of(budget) for budget in sorted(minutes)), *peers]
