"""The contents of the watch page, read from the run folder: steps, curves, scores and more.

It never contacts the running process and writes nothing: a run on another machine can be followed
too if its folder is visible.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasklm.console.durations import duration
from tasklm.run_folder import (
    CLOCK,
    COMPARE,
    ENSEMBLE,
    EVENTS,
    MODEL,
    PROGRESS,
    RECIPE,
    REPORT,
    SCORES,
    SELECTED,
    stage1_name,
)
from tasklm.storage.files import ARTEFACT, PARTIAL
from tasklm.watch.charts import MESSAGE_LENGTH, MESSAGES, History, charts_of

ROWS = 50  # of the score table
QUIET = 20  # seconds without an event after which the page says so
STEPS = ("check", "select", "tokenize", "stage 1", "stage 2", "evaluate", "compare", "report")
STEP_OF = {
    "decontaminated": "check",
    "plan": "check",
    "ranking": "select",
    "candidates": "select",
    "candidate-tokens": "select",
    "scoring-model": "select",
    "influence": "select",
    SELECTED.parent.name: "select",
    "tokens": "tokenize",
    stage1_name(1): "stage 1",
    "predictions": "evaluate",
    "baselines": "evaluate",
    "ensemble-predictions": "report",
    "soup-predictions": "report",
    MODEL: "report",
    ENSEMBLE: "report",
    "insights": "report",
}
INSIDE_ANOTHER = {"ranking"}  # built inside another artefact, which counts their time


@dataclass(frozen=True)
class Record:
    """An artefact of the run folder, finished or partial."""

    step: str
    when: float  # it was started or finished
    partial: bool
    seconds: float


class Lock:
    """Checks whether a process holds the lock of a run folder.

    Trying to take a held lock has no effect. Trying a free one takes it for a moment, in which a
    starting process would be refused; so it is tried once, and then only after its file has
    changed: whoever takes the lock writes to it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._free_since: int | None = None

    def taken_at(self) -> float | None:
        """When a process last took it; None if none ever did."""
        try:
            about = self._path.stat()
        except FileNotFoundError:
            return None
        return about.st_mtime if about.st_size else None  # an empty file is just being locked

    def held(self) -> bool:
        """Whether a process holds it now."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return False
        with file:
            about = self._path.stat()
            if not about.st_size or about.st_mtime_ns == self._free_since:
                return False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            self._free_since = about.st_mtime_ns
            return False  # closing the file releases it


class Watched:
    """One watched run folder; several threads may call `state`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.report = folder, folder / REPORT
        self._lock, self._histories = Lock(folder), {"": History(folder / EVENTS)}
        self._one_at_a_time = threading.Lock()
        self._charts: tuple[Any, list[dict[str, Any]]] = (None, [])
        self._recipe: tuple[float, dict[str, Any]] = (0.0, {})

    def state(self) -> dict[str, Any]:
        """Everything the page shows, as plain values of bounded size."""
        with self._one_at_a_time:
            return self._state(time.time())

    def _state(self, now: float) -> dict[str, Any]:
        started, running, recipe = self._lock.taken_at(), self._lock.held(), self._recipe_now()
        comparisons = _comparisons(recipe, self.folder / COMPARE)
        for name in comparisons:
            self._histories.setdefault(name, History(self.folder / COMPARE / name / EVENTS))
        histories = {name: self._histories[name] for name in ("", *comparisons)}
        for history in histories.values():
            history.read()
        records = _records(self.folder, comparisons)
        status, current = self._status(started, running, records)
        flow = _flow(status, current, records, recipe, comparisons)
        since = started or 0.0
        where, progress = "", None
        if status in ("running", "stopped"):
            where, progress = self._progress(histories, since)
        times = [since, *(history.time for history in histories.values())]
        bars, latest, quiet = [], {}, ""
        if progress:
            times.append(progress["time"])
            bars = [_bar(bar, now - progress["time"], status) for bar in progress["bars"]]
            latest = histories[where].latest([bar["title"] for bar in progress["bars"]])
        seconds = round(self._seconds(now, since, running, histories), 1)
        news = round(max(times), 3)
        if status == "running" and now - news > QUIET:
            quiet = duration(now - news)
        scores_since = since if status == "running" else 0.0
        return {
            "name": self.folder.resolve().name,
            "status": status,
            "now": round(now, 3),
            "seconds": seconds,
            "spent": duration(seconds),
            "minutes": recipe.get("budget", {}).get("minutes"),
            "news": news,
            "quiet": quiet,
            "flow": flow,
            "doing": where,
            "bars": bars,
            "latest": latest,
            "curves": self._charts_now(histories, where),
            "messages": _messages(histories),
            "scores": _scores_of(self.folder / SCORES, scores_since),
            "report": self._report_age(since),
            "folder": str(self.folder),
        }

    def _recipe_now(self) -> dict[str, Any]:
        path = self.folder / RECIPE
        changed = _changed(path)
        if changed and changed != self._recipe[0]:
            self._recipe = changed, tomllib.loads(path.read_text(encoding="utf-8"))
        return self._recipe[1]

    def _charts_now(self, histories: dict[str, History], doing: str) -> list[dict[str, Any]]:
        key = doing, {name: history.size for name, history in histories.items()}
        if key != self._charts[0]:
            self._charts = key, charts_of(histories, doing)
        return self._charts[1]

    def _status(
        self, started: float | None, running: bool, records: list[Record]
    ) -> tuple[str, str]:
        """The status of the run (waiting, running, finished, stopped, or ended as requested), and
        its step.
        """
        if started is None:
            return "waiting", ""
        if not running and self._report_age(started) == "new":
            return "finished", STEPS[-1]
        recent = [record for record in records if record.when >= started]
        if _changed(self.folder / SCORES) >= started:
            recent.append(Record("report", _changed(self.folder / SCORES), False, 0.0))
        # a finished artefact may have the same time as the one started after it
        latest = max(
            recent,
            key=lambda record: (record.partial, record.when, STEPS.index(record.step)),
            default=None,
        )
        if running:
            return "running", latest.step if latest else STEPS[0]
        # by this process or an earlier one
        unfinished = [record for record in records if record.partial]
        if unfinished:
            return "stopped", max(unfinished, key=lambda record: record.when).step
        if not records:
            return "stopped", STEPS[0]
        return "ended", max((record.step for record in records), key=STEPS.index)

    def _report_age(self, started: float) -> str | None:
        """Whether there is a report: of the latest process (new), or of an earlier one (old)."""
        changed = _changed(self.report)
        if not changed:
            return None
        return "new" if changed >= started else "old"

    def _progress(
        self, histories: dict[str, History], since: float
    ) -> tuple[str, dict[str, Any] | None]:
        """The current work of the latest process, after its ablation ("": the run itself)."""
        under_way: dict[str, dict[str, Any]] = {}
        for name, history in histories.items():
            path = history.path.with_name(PROGRESS)
            progress = _read_json(path)
            if progress and progress.get("bars") and _changed(path) >= since:
                under_way[name] = progress
        if not under_way:
            newest = max(histories, key=lambda name: histories[name].time)
            return newest, None
        latest = max(under_way, key=lambda name: under_way[name]["time"])
        return latest, under_way[latest]

    def _seconds(
        self, now: float, started: float, running: bool, histories: dict[str, History]
    ) -> float:
        """The time spent on the run, without interruptions."""
        path = self.folder / CLOCK
        clock = _read_json(path) or {}
        seconds = float(clock.get("seconds", 0.0))
        if not started:
            return seconds
        until = now if running else max(history.time for history in histories.values())
        return seconds + max(0.0, until - max(started, _changed(path)))


def _bar(bar: dict[str, Any], age: float, status: str) -> dict[str, Any]:
    """One piece of work with its remaining seconds, if known."""
    done, total, rate = bar["done"], bar["total"], bar["rate"]
    left, about = None, ""
    if total and rate and rate > 0 and status == "running":
        left = round(max(0.0, (total - done) / rate - age), 1)
        about = f"about {duration(left, rough=True)} left"
    return {
        "title": bar["title"],
        "done": done,
        "total": total,
        "left": left,
        "about": about,
        "note": bar["note"][:MESSAGE_LENGTH],
    }


def _flow(
    status: str, current: str, records: list[Record], recipe: dict[str, Any], comparisons: list[str]
) -> list[dict[str, Any]]:
    """The steps of this run, each with its state (done, now, stopped, next) and its seconds."""
    left_out = set()
    if not comparisons:
        left_out.add("compare")
    if not recipe.get("data", {}).get("corpus") or recipe.get("train", {}).get("rho1") == 0:
        left_out.add("select")
    place = STEPS.index(current) if current else -1
    here = {"running": "now", "stopped": "stopped"}.get(status, "done")
    flow = []
    for number, step in enumerate(STEPS):
        if step in left_out:
            continue
        state, seconds = here, 0.0
        if number != place:
            state = "done" if number < place else "next"
        if state == "done":
            seconds = sum(record.seconds for record in records if record.step == step)
        took = duration(seconds) if seconds else ""
        flow.append({"name": step, "state": state, "seconds": round(seconds, 1), "took": took})
    return flow


def _records(folder: Path, comparisons: list[str]) -> list[Record]:
    """The artefacts of a run and of the runs that it is compared with."""
    records = []
    for name, step in STEP_OF.items():
        records += _record(folder / name, step, name not in INSIDE_ANOTHER)
    for training in _names(folder.glob("stage1-*")):  # beside stage1
        records += _record(folder / training, "stage 1")
    for tuned in sorted(folder.glob("stage2*")):
        if tuned.is_dir():
            for seed in _names(tuned.iterdir()):
                records += _record(tuned / seed, "stage 2")
    for comparison in comparisons:
        inside = _records(folder / COMPARE / comparison, [])
        records += [replace(record, step="compare") for record in inside]
    return records


def _record(path: Path, step: str, counts: bool = True) -> list[Record]:
    """The versions of an artefact: finished, partial, or both."""
    records = []
    finished = path / ARTEFACT
    if when := _changed(finished):
        values = _read_json(finished) or {}
        records.append(Record(step, when, False, float(counts and values.get("seconds", 0.0))))
    if when := _changed(path.with_name(f"{path.name}.partial") / PARTIAL):
        records.append(Record(step, when, True, 0.0))
    return records


def _names(paths: Iterable[Path]) -> list[str]:
    """The names of artefacts, finished or partial."""
    return sorted({path.name.removesuffix(".partial") for path in paths})


def _comparisons(recipe: dict[str, Any], folder: Path) -> list[str]:
    """The ablations of the recipe, and the runs that one of them is made of, by their folders."""
    names = []
    for name in recipe.get("evaluate", {}).get("compare", []):
        if isinstance(name, str) and "/" not in name and name not in ("", ".", ".."):
            inside = sorted((folder / name).glob(f"*/{RECIPE}"))
            names += [name, *(f"{name}/{path.parent.name}" for path in inside)]
    return names


def _messages(histories: dict[str, History]) -> list[dict[str, Any]]:
    """The latest messages, newest first."""
    messages: list[dict[str, Any]] = []
    for name, history in histories.items():
        messages += [{"time": when, "of": name, "text": text} for when, text in history.messages]
    latest = sorted(messages, key=lambda message: message["time"])[-MESSAGES:]
    return latest[::-1]


def _scores_of(path: Path, since: float) -> dict[str, Any] | None:
    """The score table as text; None if there is none yet."""
    scores = _read_json(path)
    if not scores or _changed(path) < since:
        return None
    rows = [
        {
            "name": row["name"],
            "kind": row["kind"],
            "dev": _spread(row["dev"]),
            "test": _spread(row["test"]),
        }
        for row in scores["rows"]
    ]
    return {
        "metric": scores["metric"].replace("_", " "),
        "verdict": scores["verdict"],
        "rows": rows[:ROWS],
    }


def _spread(value: dict[str, Any] | None) -> str:
    if value is None:
        return "–"
    text = f"{100 * value['mean']:.1f}"
    if len(value["values"]) > 1:
        text += f" ± {100 * value['sd']:.1f}"
    if value["low"] is not None:
        text += f" [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"
    return text


def _read_json(path: Path) -> dict[str, Any] | None:
    """The values of a JSON file, which is never half-written; None if it does not exist."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return values


def _changed(path: Path) -> float:
    """When a file last changed; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0
