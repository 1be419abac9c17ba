"""A run folder that a test fills as a run does, by the package's own lock, artefacts and tracker,
but without training anything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.tracking import EventFile, Tracker

RECIPE = """\
[data]
train = "train.csv"
corpus = ["texts"]
[finetune]
seeds = 2
[evaluate]
compare = {compare}
[budget]
minutes = 20.0
"""
SPREAD = {"mean": 0.814, "sd": 0.009, "values": [0.805, 0.823], "low": 0.783, "high": 0.82}
SINGLE = {"mean": 0.515, "sd": 0.0, "values": [0.515], "low": None, "high": None}


class GrowingRun:
    """A run folder and the tracker that writes its events."""

    def __init__(self, folder: Path, compare: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.artefacts = folder, Artefacts(folder)
        (folder / "recipe.toml").write_text(
            RECIPE.format(compare=json.dumps(list(compare))), encoding="utf-8"
        )
        self.tracker = Tracker(sinks=[EventFile(folder / "events.jsonl")])

    def point(self, stage: str, step: int, **values: Any) -> None:
        """Writes a point of a learning curve as the training loop does."""
        rates = {"tokens_per_second": 40000 + step, "tflops": 0.05, "of_ceiling": 0.1}
        self.tracker.event(
            "step", stage=stage, **rates, **{"step": step, "rate": 1e-3 / step, **values}
        )

    def build(self, name: str, builder: Any = lambda folder: None) -> None:
        """Builds an artefact."""
        self.artefacts.build(name, f"key of {name}", builder)

    def finish(self, verdict: str = "The model wins.") -> None:
        """Writes scores and a report."""
        rows = [
            {"name": "majority", "kind": "baseline", "dev": SINGLE, "test": None},
            {"name": "BM25 selection (TLM)", "kind": "ours", "dev": SPREAD, "test": SPREAD},
        ]
        scores = {"metric": "macro_f1", "rows": rows, "verdict": verdict}
        (self.folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
        page = "<!DOCTYPE html><html lang=en><title>r</title><h1>the report</h1></html>"
        (self.folder / "report.html").write_text(page, encoding="utf-8")
