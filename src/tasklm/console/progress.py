"""The progress of a long piece of work: how far, how fast, and how much longer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

SAMPLE_EVERY = 0.5  # seconds between the positions that are remembered, at least
WINDOW = 20.0  # seconds of work that the rate is computed from
SETTLED = 3.0  # seconds of work before there can be a rate
UNSTEADY = 2.0  # times as fast in one half of that window as in the other: no estimate yet


class Pace:
    """The positions of the last seconds, and the rate once it is steady.

    The first training steps are slow because code is compiled and data read for the first time; an
    estimate from them is off by hours. So there is none until both halves of the window ran at
    about the same pace.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()  # (seconds, position)
        self._steady = False

    def move(self, now: float, position: float) -> None:
        """Records a position; the first may come from an earlier process."""
        samples = self._samples
        if samples and now - samples[-1][0] < SAMPLE_EVERY:
            return
        samples.append((now, position))
        while len(samples) > 3 and now - samples[1][0] > WINDOW:
            samples.popleft()

    def rate(self) -> float | None:
        """The amount done per second; None until it is known."""
        samples = list(self._samples)
        if len(samples) < 3 or samples[-1][0] - samples[0][0] < SETTLED:
            return None
        if not self._steady:
            half = (samples[0][0] + samples[-1][0]) / 2
            middle = min(samples[1:-1], key=lambda sample: abs(sample[0] - half))
            slower, faster = sorted((_slope(samples[0], middle), _slope(middle, samples[-1])))
            self._steady = slower > 0 and faster <= UNSTEADY * slower
        rate = _slope(samples[0], samples[-1])
        if self._steady and rate > 0:
            return rate
        return None


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


class View(Protocol):
    """A listener that is notified when a bar moves."""

    def moved(self, bar: Bar) -> None: ...


class Bar:
    """Progress of one piece of long work; cheap enough to move per item.

    `total` is the amount of work, None if unknown; it may be changed. `views` are notified of every
    move. `of` names the nested run that the work belongs to.
    """

    def __init__(
        self, title: str = "", total: float | None = None, views: Sequence[View] = (), of: str = ""
    ) -> None:
        self.title, self.total, self.views, self.of = title, total, views, of
        self.position, self.note, self.started = 0.0, "", time.monotonic()
        self._pace = Pace()

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Advances by an amount; `note` is the one number that matters, and an empty one keeps the
        last.
        """
        self.at(self.position + amount, note)

    def at(self, position: float, note: str = "") -> None:
        """Moves to a position; `note` as in `advance`."""
        self.position, self.note = position, note or self.note
        self._pace.move(time.monotonic(), position)
        for view in self.views:
            view.moved(self)

    @property
    def name(self) -> str:
        """The title, after the name of its run."""
        if not self.of:
            return self.title
        return f"{self.of}: {self.title}"

    @property
    def share(self) -> float | None:
        """How much of the work is done, from 0 to 1; None if unknown."""
        if not self.total:
            return None
        return min(1.0, self.position / self.total)

    @property
    def left(self) -> float | None:
        """Estimated seconds left; None until the pace is steady."""
        if not self.total:
            return None
        rate = self._pace.rate()
        if rate is None:
            return None
        return max(0.0, self.total - self.position) / rate

    def values(self) -> dict[str, Any]:
        """Title, position, total, rate per second (None until known) and note, for a record."""
        total = None if self.total is None else float(self.total)
        return {
            "title": self.title,
            "done": float(self.position),
            "total": total,
            "rate": self._pace.rate(),
            "note": self.note,
        }
