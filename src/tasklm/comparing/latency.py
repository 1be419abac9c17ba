"""Latency side by side: every model answers the same texts in turns, in one process.

Turns spread what else the machine does over all models alike. The medians of the two halves of the
measurement say how steady it was.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.comparing.results import Latency
from tasklm.contestants.base import Model
from tasklm.storage.files import read_json, write_json
from tasklm.tasks.examples import Example
from tasklm.tracking import Tracker

FILE = "latency.json"
TEXTS, FEWEST = 200, 20  # texts that are timed one by one, at most and at least
BATCH = 32
BATCHES = 8  # different ones, at most
WARM_UP = 3  # texts before the clock counts
SECONDS = 45.0  # for the texts one by one, and again for the batches
SLOW = 0.95


@dataclasses.dataclass(frozen=True)
class Measured:
    """The latency of each model, and how steady the machine was."""

    latencies: dict[str, Latency]
    texts: int
    unsteady: float
    device: str = "cpu"

    def write(self, folder: Path) -> None:
        """Writes the file that `read` reads."""
        write_json(folder / FILE, dataclasses.asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Measured:
        """What `write` wrote."""
        values: dict[str, Any] = read_json(folder / FILE)
        latencies = {title: Latency(**one) for title, one in values["latencies"].items()}
        return cls(latencies, values["texts"], values["unsteady"], values["device"])


def measure(
    models: Mapping[str, Model],
    examples: Sequence[Example],
    tracker: Tracker,
    seconds: float = SECONDS,
) -> Measured:
    """Times all models on the same texts, first one text at a time, then in batches."""
    order = np.random.default_rng(0).permutation(len(examples)).tolist()
    texts = [dataclasses.replace(examples[place], label=None) for place in order]
    for model in models.values():
        for text in texts[:WARM_UP]:
            model.labels([text])
    with tracker.progress("measuring latency, one text at a time", seconds) as bar:
        single = _in_turns(models, [[text] for text in texts[:TEXTS]], FEWEST, seconds, bar)
    starts = range(0, min(len(texts), BATCH * BATCHES), BATCH)
    batches = [texts[start : start + BATCH] for start in starts]
    whole = [batch for batch in batches if len(batch) == BATCH] or batches[:1]
    with tracker.progress("measuring latency in batches", seconds) as bar:
        together = _in_turns(models, whole, 1, seconds, bar)
    size = len(whole[0])
    latencies = {
        title: Latency(
            median=statistics.median(own),
            slow=float(np.quantile(own, SLOW)),
            per_second=size / statistics.median(together[title]),
        )
        for title, own in single.items()
    }
    count = min((len(own) for own in single.values()), default=0)
    return Measured(latencies, count, unsteadiness(single))


def _in_turns(
    models: Mapping[str, Model],
    inputs: Sequence[Sequence[Example]],
    fewest: int,
    seconds: float,
    bar: Any,
) -> dict[str, list[float]]:
    """The seconds of each model for each of the inputs, as many as there is time for; the first in
    a turn is another one each time.
    """
    names = list(models)
    timings: dict[str, list[float]] = {name: [] for name in names}
    began = time.perf_counter()
    for number, own in enumerate(inputs):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            before = time.perf_counter()
            models[name].labels(own)
            timings[name].append(time.perf_counter() - before)
        spent = time.perf_counter() - began
        bar.at(min(spent, seconds))
        if spent > seconds and number + 1 >= fewest:
            break
    return timings


def unsteadiness(timings: Mapping[str, Sequence[float]]) -> float:
    """The largest change of a median from one half of the measurement to the other, as a share."""
    changes = [0.0]
    for own in timings.values():
        half = len(own) // 2
        if half:
            one, other = statistics.median(own[:half]), statistics.median(own[half:])
            changes.append(abs(one - other) / max(one, other, 1e-12))
    return max(changes)
