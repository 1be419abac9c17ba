"""The time of steps: by the clock, and of the processor."""

from __future__ import annotations

import time

Step = dict[str, float]  # "seconds" and "cpu"


class StepClock:
    """Runs since it was made; each step ends where the next one begins."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self._since, self._used = time.monotonic(), time.process_time()

    def keep(self, step: str) -> None:
        """Counts the time since the last step as this one's, threads included."""
        now, used = time.monotonic(), time.process_time()
        before = self.steps.get(step, {"seconds": 0.0, "cpu": 0.0})
        self.steps[step] = {
            "seconds": before["seconds"] + now - self._since,
            "cpu": before["cpu"] + used - self._used,
        }
        self._since, self._used = now, used
