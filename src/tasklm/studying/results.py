"""What a study has found: our scores beside the published ones, and what agrees."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasklm.analysis.run_pairs import difference_of
from tasklm.errors import RunError
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Row, Scores, from_dict
from tasklm.evaluate.task_tables import scores_of_task
from tasklm.run_folder import SCORES
from tasklm.storage.files import read_json
from tasklm.studying.jobs import Job
from tasklm.studying.order import Order
from tasklm.studying.running import is_done
from tasklm.studying.study import AVERAGE, Claim, Keys, Line, Study

CONFIRMED, AGAINST = "confirmed", "not confirmed"
UNDECIDED, UNMEASURED = "undecided", "not measured"


@dataclass(frozen=True)
class Cell:
    """A row on a task: the published score and ours."""

    task: str
    line: str
    published: float | None
    metric: str = ""
    split: str = ""  # that ours is of
    ours: Row | None = None
    problem: str = ""  # why there is none of ours
    run: str = ""  # of several tasks: the run that their cells share

    @property
    def score(self) -> float | None:
        """Our score × 100: on test, or on dev where there is no test set."""
        if self.ours is None:
            return None
        spread = self.ours.test or self.ours.dev
        return None if spread is None else 100 * spread.mean


@dataclass(frozen=True)
class Finding:
    """Whether a claim holds in our runs: the mean difference over its tasks, in points."""

    claim: Claim
    verdict: str
    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    tasks: dict[str, Difference] = field(default_factory=dict)
    problem: str = ""  # why rows that both have scores could not be compared on a task

    def sentence(self) -> str:
        """The verdict in words."""
        claim = self.claim
        if self.verdict == UNMEASURED:
            why = self.problem or f"{claim.better} or {claim.than} has no score"
            return f"{claim.text}: {UNMEASURED} ({why})."
        interval = f"{self.mean:+.1f} points, [{self.low:+.1f}, {self.high:+.1f}]"
        on = ", ".join(self.tasks)
        apart = f"; not on {self.problem}" if self.problem else ""
        rows = f"{claim.better} − {claim.than}"
        return f"{claim.text}: {self.verdict} ({rows}: {interval}; {on}{apart})."


@dataclass(frozen=True)
class Outcome:
    """A study with its scores."""

    study: Study
    scale: str
    tasks: tuple[str, ...]
    cells: list[Cell]
    findings: list[Finding]
    axis: dict[str, float] = field(default_factory=dict)  # row → where it stands on the x axis
    confidence: float = 0.95  # of all intervals
    given: Keys = field(default_factory=dict)  # recipe keys of the command line

    def cells_of(self, line: Line) -> list[Cell]:
        """A row on each task."""
        by_task = {cell.task: cell for cell in self.cells if cell.line == line.name}
        published = line.published
        return [
            by_task.get(task) or Cell(task, line.name, published.get(task)) for task in self.tasks
        ]

    def average_of(self, line: Line) -> tuple[float | None, float | None]:
        """Our mean over the tasks, and the published one: over the same tasks, or as stated."""
        cells = self.cells_of(line)
        published = _mean([cell.published for cell in cells])
        if published is None:
            published = line.published.get(AVERAGE)
        return _mean([cell.score for cell in cells]), published

    @property
    def flops(self) -> float:
        """The training FLOPs of all runs, those that they share counted in each."""
        runs = {cell.run or (cell.task, cell.line): cell.ours for cell in self.cells}
        return sum(row.flops_exact for row in runs.values() if row is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        cells = []
        for cell in self.cells:
            values = dataclasses.asdict(cell)
            values |= {"row": values.pop("line"), "score": cell.score}
            cells.append(values)
        claims = [{**dataclasses.asdict(one), "sentence": one.sentence()} for one in self.findings]
        return {
            "study": self.study.name,
            "source": self.study.source,
            "published_on": self.study.split,
            "scale": self.scale,
            "confidence": self.confidence,
            "given": self.given,
            "tasks": list(self.tasks),
            "cells": cells,
            "claims": claims,
        }


def _mean(scores: Sequence[float | None]) -> float | None:
    """The mean of scores that are all known."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    return sum(known) / len(known)


def outcome_of(
    study: Study, order: Order, jobs: Sequence[Job], problems: Mapping[str, str]
) -> Outcome:
    """The results of the runs that are finished."""
    scored = [job for job in jobs if job.line.is_shown]
    folders: dict[tuple[str, str], Job] = {}
    scores: dict[tuple[str, str], Scores] = {}
    for job in scored:
        own = from_dict(read_json(job.folder / SCORES)) if is_done(job) else None
        for task in (task for task in study.tasks if task in job.tasks):
            folders[task, job.line.name] = job
            if own is not None:
                scores[task, job.line.name] = scores_of_task(own, task)
    tasks = tuple(task for task in study.tasks if any(task in place for place in folders))
    cells = []
    for task in tasks:
        for line in study.lines_run:
            place = task, line.name
            if place in folders:
                cells.append(_cell(task, folders[place], scores.get(place), problems))
            elif line.is_shown and (not line.together or task in study.tasks_of(line)):
                problem = "not run: its data is missing"
                cells.append(Cell(task, line.name, line.published.get(task), problem=problem))
    findings = [finding_of(claim, *_differences(claim, folders, scores)) for claim in study.claims]
    confidence = jobs[0].recipe.evaluate.confidence
    plot = axis_of(study)
    given = order.overrides
    return Outcome(study, order.scale, tasks, cells, findings, plot, confidence, given)


def axis_of(study: Study) -> dict[str, float]:
    """Where the rows stand on the x axis; rows without a number are left out of a plot."""
    if not study.axis:
        return {}
    values = {line.name: line.recipe.get(study.axis) for line in study.lines}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def _cell(task: str, job: Job, scores: Scores | None, problems: Mapping[str, str]) -> Cell:
    published, run = job.line.published.get(task), job.title if job.members else ""
    if scores is None or scores.ours is None:
        problem = problems.get(job.title, "not run")
        return Cell(task, job.line.name, published, problem=problem, run=run)
    split = "test" if scores.ours.test is not None else "dev"
    return Cell(task, job.line.name, published, scores.metric, split, scores.ours, run=run)


def _differences(
    claim: Claim,
    jobs: Mapping[tuple[str, str], Job],
    scores: Mapping[tuple[str, str], Scores],
) -> tuple[dict[str, Difference], str]:
    """The paired difference of a claim's two rows on each of its tasks that has both, and why
    another task has none.
    """
    differences, problem = dict[str, Difference](), ""
    for task in claim.tasks:
        pair = (task, claim.better), (task, claim.than)
        if not all(one in scores for one in pair):
            continue
        better, than = (jobs[one].folder for one in pair)
        try:
            both = scores[pair[0]], scores[pair[1]]
            differences[task] = difference_of(better, than, both, task)
        except RunError as error:
            problem = f"{task}: {error}"
    return differences, problem


def finding_of(claim: Claim, differences: Mapping[str, Difference], problem: str = "") -> Finding:
    """The mean over tasks, which are independent of one another: the half-widths of their intervals
    add up as the square root of the sum of squares.
    """
    if not differences:
        return Finding(claim, UNMEASURED, problem=problem)
    count = len(differences)
    mean = 100 * sum(one.difference for one in differences.values()) / count
    below, above = (
        100 * math.sqrt(sum(side**2 for side in sides)) / count
        for sides in (
            [one.difference - one.low for one in differences.values()],
            [one.high - one.difference for one in differences.values()],
        )
    )
    low, high = mean - below, mean + above
    verdict = UNDECIDED
    if low > 0:
        verdict = CONFIRMED
    elif high < 0:
        verdict = AGAINST
    return Finding(claim, verdict, mean, low, high, dict(differences), problem)
