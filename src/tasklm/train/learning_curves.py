"""The records of a training: its learning curve, the main number, speed, memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from tasklm.device.machine import Machine
from tasklm.errors import DamagedError
from tasklm.storage.files import read_json, write_json
from tasklm.train.held_out import HELD_OUT
from tasklm.train.steps import Record

POINTS = 200  # points of a learning curve
WRITE_EVERY = 1.0  # seconds between versions of its file, at least


class Curve:
    """At most about POINTS averaged points of the losses, and every dev score.

    It is part of checkpoints, because averages depend on all steps; its file is for watching the
    run, so while that goes on it may be a moment behind.
    """

    def __init__(self, path: Path | None, peak_rate: float) -> None:
        self.path, self.peak_rate = path, peak_rate
        self.points = _points_in(path)
        self._sums: dict[str, list[Any]] = {}
        self._written: float | None = None

    def take(self, record: Record) -> dict[str, float] | None:
        """A new point when one is due; only this waits for the device."""
        for name, loss in record.losses.items():
            self._sums.setdefault(name, []).append(loss)
        due = record.step % max(1, record.steps // POINTS) == 0 or record.step == record.steps
        if not due and not record.scores:
            return None
        means = {
            name: round(float(torch.stack(values).mean()), 5) for name, values in self._sums.items()
        }
        point = {
            "step": record.step,
            "rate": self.peak_rate * record.share,
            **means,
            **record.scores,
        }
        self._sums = {}
        self.points = [old for old in self.points if old["step"] < record.step] + [point]
        if self._written is None or time.monotonic() - self._written >= WRITE_EVERY:
            self.write()
        return point

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold: the points, and the losses since the last one."""
        return {
            "points": self.points,
            "since": {
                name: [float(loss) for loss in losses] for name, losses in self._sums.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        self.points = state["points"]
        self._sums = {
            name: [torch.tensor(loss) for loss in losses] for name, losses in state["since"].items()
        }

    def write(self) -> None:
        """Writes the curve to its file, where it has one."""
        if self.path is not None:
            write_json(self.path, self.points, synced=False)
        self._written = time.monotonic()


def _points_in(path: Path | None) -> list[dict[str, float]]:
    """The points of an interrupted training; empty if a power cut damaged the file."""
    if path is None or not path.exists():
        return []
    try:
        points = read_json(path)
    except DamagedError:
        return []
    return points if isinstance(points, list) else []


class Headline:
    """The main number of a training: the best dev score or, until there is one, the loss."""

    def __init__(self) -> None:
        self._dev: float | None = None
        self._reads_text = False  # selected text, whose loss is then the main one

    def text(self, point: dict[str, float]) -> str:
        """The number after a new point of the curve; empty if the point does not have it."""
        if "dev" in point:
            self._dev = point["dev"] if self._dev is None else max(point["dev"], self._dev)
        if self._dev is not None:
            return f"best dev {100 * self._dev:.1f}"
        others = ("step", "rate", HELD_OUT)
        losses = {name: value for name, value in point.items() if name not in others}
        on_text = [
            value
            for name, value in losses.items()
            if name != "task" and not name.endswith(" on task")
        ]
        self._reads_text = self._reads_text or bool(on_text)
        main = on_text if self._reads_text else list(losses.values())
        return f"loss {main[-1]:.2f}" if main else ""


class Speed:
    """Tokens and FLOPs per second since the last point, compared with the device's peak."""

    def __init__(self, machine: Machine, ceiling: float) -> None:
        self.machine, self.ceiling = machine, ceiling * machine.ranks.count
        self._tokens, self._flops, self._seconds = 0, 0.0, 0.0

    def since_last(self, record: Record) -> dict[str, float]:
        """Tokens per second, TFLOP/s, their share of the peak and (on a GPU) memory in GB."""
        seconds = max(record.seconds - self._seconds, 1e-9)
        tokens = (record.tokens - self._tokens) / seconds
        flops = (record.flops - self._flops) / seconds
        self._tokens, self._flops, self._seconds = record.tokens, record.flops, record.seconds
        rates = {
            "tokens_per_second": round(tokens),
            "tflops": round(flops / 1e12, 3),
            "of_ceiling": round(flops / self.ceiling, 3),
        }
        if peak := self.machine.peak_bytes():
            rates["memory_gb"] = round(peak / 1e9, 2)
        return rates
