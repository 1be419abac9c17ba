"""The work of a comparison in this process, and small comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.comparing.results import Against, Comparison, Cost, Latency, Machine, Result
from tasklm.comparing.worker import do
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Spread
from tasklm.tracking import SILENT


def in_this_process(work: dict[str, Any], folder: Path, threads: int) -> None:
    """What stands in for a process."""
    do(work, SILENT)


def against(difference: float, p: float, resamples: int = 1000) -> Against:
    """A difference whose p is the same before its correction."""
    return Against(Difference(difference, difference - 0.01, difference + 0.01, p, resamples), p)


def result(title: str, score: float, **more: Any) -> Result:
    """A contestant with a score on dev and test."""
    milliseconds, size = more.pop("milliseconds", 1.0), more.pop("size", 1_000_000)
    latency = Latency(milliseconds / 1e3, 2 * milliseconds / 1e3, 1e3 / milliseconds)
    needs = {name: more.pop(name) for name in ("reads_text", "outside_weights") if name in more}
    cost = Cost(30.0, more.pop("memory", 5e8), size, 1e12, 1000, **needs)
    given: dict[str, Any] = {
        "contestant": title,
        "dev": Spread(score, 0.0, [score]),
        "test": Spread(score, 0.0, [score], score - 0.02, score + 0.02),
        "metrics": {"macro_f1": score, "accuracy": score + 0.01},
        "latency": latency,
        "cost": cost,
        "setting": f"setting of {title}",
    }
    return Result(title, **{**given, **more})


def comparison(*results: Result, **changes: Any) -> Comparison:
    """Contestants together, without what follows from them."""
    given: dict[str, Any] = {
        "metric": "macro_f1",
        "split": "test",
        "confidence": 0.95,
        "data": {"train": 900, "dev": 100, "test": 200},
        "minutes": 20.0,
        "machine": Machine(2, "cpu", 100, 32, 0.06, "x86_64"),
    }
    return Comparison(results=list(results), **{**given, **changes})
