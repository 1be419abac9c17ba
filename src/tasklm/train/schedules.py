"""Learning rate over the course of training, as a share of the peak."""

from __future__ import annotations

from typing import Any


class WarmupLinear:
    """A linear rise over the warm-up, then a linear fall to 0 at the last step.

    `shorten` ends the fall earlier without a jump: used when the machine turns out slower than measured.
    """

    def __init__(self, steps: int, warmup: float) -> None:
        self.steps = steps
        self.rising = max(1, round(warmup * steps))
        self.turn, self.height = self.rising, 1.0  # the fall starts at step `turn` from share `height`

    def share(self, step: int) -> float:
        """Returns the share of the peak rate for `step`, 0 being the first."""
        if step < self.turn:
            return min(1.0, (step + 1) / self.rising)
        return self.height * max(0.0, (self.steps - step) / max(1, self.steps - self.turn))

    def shorten(self, step: int, steps: int) -> None:
        """Ends the schedule after `steps` steps in all: falling from where it is at `step`, or after the rise if that goes on."""
        if step < self.rising:
            self.rising = self.turn = max(step, min(self.rising, steps // 2))
            self.height = 1.0
        else:
            self.height, self.turn = self.share(step), step
        self.steps = steps

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs."""
        return {"steps": self.steps, "rising": self.rising, "turn": self.turn, "height": self.height}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over the state of a checkpoint."""
        self.steps, self.rising, self.turn, self.height = state["steps"], state["rising"], state["turn"], state["height"]
