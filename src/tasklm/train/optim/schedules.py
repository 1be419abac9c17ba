"""Learning rate schedules, as a share of the peak; and how many steps fit into the time."""

from __future__ import annotations

import math
from typing import Any

from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import SCHEDULES
from tasklm.registry import nearest

ROOT = 0.005  # of the schedule "root"
TOLERANCE = 0.03  # tolerated error of the forecast, as a share of the time


class Schedule:
    """A linear rise over the warm-up, and a fall in one of four shapes.

    "linear" and "cosine" fall from the warm-up to the end; "constant" stays at the peak and falls,
    linearly, over the last `decay` share. All end at 0 and are functions of a progress from 0 to 1
    which is linear in the step, and `replan` bends that line: the rate stays without a jump, inside
    the warm-up too. "root" divides by 1 + 0.005 · √step, from the first step on and whatever the
    number of steps (arXiv 1809.08370).
    """

    def __init__(self, shape: str, steps: int, warmup: float, decay: float = 0.2) -> None:
        problems = []
        if shape not in SCHEDULES:
            problems.append(
                f"schedule = {shape!r}: choose from "
                f"{', '.join(SCHEDULES)}{nearest(shape, list(SCHEDULES))}"
            )
        if not 0 <= warmup < 1:
            problems.append(
                f"warmup = {warmup}: must be a share of the steps, at least 0 and below 1"
            )
        if not 0 < decay <= 1:
            problems.append(f"decay = {decay}: must be a share of the steps, above 0 and at most 1")
        if problems:
            raise RecipeError(problems)
        self.shape, self.steps, self.decay = shape, steps, decay
        self._rise = max(1, round(warmup * steps)) / max(
            1, steps
        )  # the progress at which the warm-up ends
        self._bend, self._done = 0, 0.0  # the step of the last replanning, and the progress there

    def share(self, step: int) -> float:
        """The share of the peak rate for `step`, 0 being the first; 0 after the last."""
        if step >= self.steps:
            return 0.0
        # The rise is read at the end of the step and the fall at its start: neither the first step
        # nor the last has rate 0.
        risen = min(1.0, self._progress(step + 1) / self._rise)
        if self.shape == "root":
            return risen / (1.0 + ROOT * math.sqrt(step))
        return min(risen, self._fall(self._progress(step)))

    def replan(self, step: int, steps: int) -> None:
        """Makes the schedule end after `steps` steps in total, earlier or later than before,
        continuing from its state at `step`.
        """
        if steps <= step:
            raise ValueError(f"a schedule at step {step} cannot end after {steps} steps")
        self._bend, self._done = step, self._progress(step)
        self.steps = steps

    def state(self) -> dict[str, Any]:
        """The state for `restore`, as plain numbers."""
        return {"steps": self.steps, "rise": self._rise, "bend": self._bend, "done": self._done}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        self.steps = state["steps"]
        self._rise = state["rise"]
        self._bend = state["bend"]
        self._done = state["done"]

    def _progress(self, step: int) -> float:
        return self._done + (1 - self._done) * (step - self._bend) / (self.steps - self._bend)

    def _fall(self, progress: float) -> float:
        if self.shape == "constant":
            return (1 - progress) / self.decay
        if progress <= self._rise:
            return 1.0
        left = (1 - progress) / (1 - self._rise)
        if self.shape == "linear":
            return left
        return (1 - math.cos(math.pi * left)) / 2


def steps_that_fit(
    step: int,
    steps: int,
    seconds: float,
    allowed: float,
    *,
    since: tuple[int, float] = (0, 0.0),
    most: int | None = None,
) -> int | None:
    """The total steps that fit into the allowed seconds; None if the planned ones nearly do.

    `step` steps took `seconds`. The pace is measured since `since` = (step, seconds): set after the
    first steps, it excludes one-time costs such as compilation, which count as time spent but say
    nothing about the steps to come. The answer is never less than one more step, and never above
    `most`.
    """
    steps_timed, seconds_timed = step - since[0], seconds - since[1]
    if steps_timed <= 0 or seconds_timed <= 0:
        return None
    pace = seconds_timed / steps_timed
    forecast = seconds + pace * (steps - step)
    if abs(forecast - allowed) <= TOLERANCE * allowed:
        return None
    fitting = step + int((allowed - seconds) / pace)
    if most is not None:
        fitting = min(fitting, most)
    fitting = max(fitting, step + 1)
    if fitting == steps:
        return None
    return fitting
