"""Messages and learning curves from the events of a run, thinned to what a page can show."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tasklm.run_folder import DEV_OF, ON_TRAIN

MOST_POINTS = 6000  # of all curves together
FEWEST, MOST = 20, 240  # points of one line
KEPT = 4 * MOST  # points of a line in memory
MESSAGES, MESSAGE_LENGTH = 40, 500  # the latest ones in memory; characters of one
LINES = 12  # of one chart
TITLES = {
    "dev": "dev score",
    ON_TRAIN: "train score",
    "rate": "learning rate",
    "tokens_per_second": "tokens per second",
}
NOT_DRAWN = {"tflops", "of_ceiling", "memory_gb"}
STAGE = re.compile(r"stage (1|2)(?:, training (\d+))?(?:, seed (\d+))?")

Point = tuple[float, float]
Place = tuple[int, int, int]  # in the flow: stage, training of stage 1, seed of stage 2
FIRST: Place = (0, 0, 0)  # the scoring model


class History:
    """The contents of events.jsonl, read incrementally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.time = 0.0  # of the last event
        self.messages: deque[tuple[float, str]] = deque(maxlen=MESSAGES)
        self.curves: dict[str, dict[str, list[Point]]] = {}  # stage → name → points by step
        self._read = 0
        self._latest: dict[str, Any] = {}

    def read(self) -> None:
        """Reads the events written since the last call."""
        for event in self._new():
            self.time = float(event.get("time", self.time))
            if event.get("event") == "message":
                self.messages.append((self.time, str(event.get("text", ""))[:MESSAGE_LENGTH]))
            elif event.get("event") == "step" and "stage" in event and "step" in event:
                self._take_point(str(event["stage"]), float(event["step"]), event)

    @property
    def size(self) -> int:
        """The bytes of events read so far: while this is unchanged, so are the curves."""
        return self._read

    def latest(self, stages: Sequence[str]) -> dict[str, float]:
        """The numbers of the last point, if it belongs to one of these stages."""
        if self._latest.get("stage") not in stages:
            return {}
        return _numbers(self._latest)

    def _new(self) -> Iterator[dict[str, Any]]:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if file.seek(0, 2) < self._read:
                self._forget()  # the folder was deleted, and a new run has its name
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is still being written
                self._read += len(line)
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # a process was killed while it wrote this line
                if isinstance(event, dict):
                    yield event

    def _take_point(self, stage: str, step: float, event: dict[str, Any]) -> None:
        """Adds a point.

        Later points of this stage and of the following ones belong to a training that is being
        repeated.
        """
        for other in [name for name in self.curves if _after(name, stage)]:
            del self.curves[other]
        lines = self.curves.setdefault(stage, {})
        for points in lines.values():
            while points and points[-1][0] >= step:
                points.pop()
        for name, value in _numbers(event).items():
            points = lines.setdefault(name, [])
            points.append((step, value))
            if len(points) > KEPT:
                points[:] = thinned(points, KEPT // 2)
        self._latest = event


def charts_of(histories: dict[str, History], doing: str = "") -> list[dict[str, Any]]:
    """Groups of charts: {of, title, charts: [{title, lines: [{name, points}]}]}.

    `of` is the ablation that the training belongs to, "" for the run itself. Current work comes
    first, then the run's own, later stages before earlier ones.
    """
    groups: list[dict[str, Any]] = []
    for name in sorted(histories, key=lambda name: (name != doing, name != "")):
        history = histories[name]
        stages = dict(sorted(history.curves.items(), key=lambda one: _place(one[0]) or FIRST))
        for title in dict.fromkeys(_group(stage) for stage in reversed(stages)):
            inside = {stage: lines for stage, lines in stages.items() if _group(stage) == title}
            groups.append({"of": name, "title": title, "charts": _charts(inside)})
    charts = chain.from_iterable(group["charts"] for group in groups)
    lines = list(chain.from_iterable(chart["lines"] for chart in charts))
    most = max(FEWEST, min(MOST, MOST_POINTS // max(1, len(lines))))
    for line in lines:
        line["points"] = [[x, float(f"{y:.5g}")] for x, y in thinned(line["points"], most)]
    return groups


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most `most` of the points, evenly spaced, including the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]


def _charts(stages: dict[str, dict[str, list[Point]]]) -> list[dict[str, Any]]:
    """Losses, dev score, learning rate and speed of a stage; the last two of the latest seed."""
    names = set(chain.from_iterable(stages.values()))
    of_tasks = {name for name in names if name.startswith(DEV_OF)}
    losses = sorted(names - TITLES.keys() - NOT_DRAWN - of_tasks)
    every, last = list(stages), list(stages)[-1:]
    wanted = [("loss", losses, every), (TITLES["dev"], ["dev"], every)]
    wanted.append(("dev score of each task", sorted(of_tasks), last))
    wanted += [(title, [name], last) for name, title in TITLES.items() if name != "dev"]
    charts = []
    for title, own, of in wanted:
        lines: list[dict[str, Any]] = []
        for stage in of:
            points = stages[stage]
            lines += [
                {"name": _line_name(title, name, stage, len(own)), "points": points[name]}
                for name in own
                if name in points
            ]
        if lines:
            charts.append({"title": title, "lines": lines[-LINES:]})
    return charts


def _line_name(title: str, name: str, stage: str, names: int) -> str:
    """The name of a line: its quantity, and its training and seed if there are several."""
    number, training, seed = _place(stage) or FIRST
    parts = []
    if training > 1:
        parts.append(f"training {training}")
    if number == 2:
        parts.append(f"seed {seed}")
    if not parts:
        return name if title == "loss" else title
    if names > 1:
        parts.insert(0, name)
    return ", ".join(parts)


def _group(stage: str) -> str:
    """The stage whose chart shows a curve: all trainings and seeds of a stage share one."""
    place = _place(stage)
    if place is None or place == FIRST:
        return stage
    return f"stage {place[0]}"


def _place(stage: str) -> Place | None:
    """The position of a stage in the flow; None for an unknown one."""
    if stage == "scoring model":
        return FIRST
    known = STAGE.fullmatch(stage)
    if known is None:
        return None
    return int(known[1]), int(known[2] or 1), int(known[3] or 0)


def _after(one: str, other: str) -> bool:
    """Whether one stage is known to be trained from another, or after it with the next seed.

    All trainings follow the first stage 1, whose number of steps they use; otherwise they are
    independent.
    """
    here, there = _place(one), _place(other)
    if here is None or there is None or here <= there:
        return False
    return here[1] == there[1] or there <= (1, 1, 0)


def _numbers(event: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a point, its step left out."""
    return {
        name: value
        for name, value in event.items()
        if name not in ("time", "step")
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
    }
