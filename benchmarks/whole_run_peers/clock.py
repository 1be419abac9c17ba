"""The time of steps: by the clock, and of the processor."""

from __future__ import annotations

import os
import time

Step = dict[str, float]  # "seconds" and "cpu"


class StepClock:
    """Runs since it was made; each step ends where the next one begins."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self._since, self._used = time.monotonic(), _used()

    def keep(self, step: str) -> None:
        """Counts the time since the last step as this one's."""
        now, used = time.monotonic(), _used()
        before = self.steps.get(step, {"seconds": 0.0, "cpu": 0.0})
        self.steps[step] = {
            "seconds": before["seconds"] + now - self._since,
            "cpu": before["cpu"] + used - self._used,
        }
        self._since, self._used = now, used


def _used() -> float:
    """The CPU seconds of all threads, and of the processes that have ended, such as loaders."""
    return sum(os.times()[:4])
