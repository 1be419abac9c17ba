"""The benchmark of chosen labels: a small draw, and the page of recorded ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from tests.conftest import labelled

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_a_small_draw_is_made_kept_and_shown(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, cases = module("label_next"), module("label_runs.cases")
    small = {"START": 20, "MORE": 10, "POOL": 50, "DEV": 30, "SECONDS": 0.5}
    for name, value in small.items():
        monkeypatch.setattr(cases, name, value)
    folder = tmp_path / "data" / "imdb"
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": 100, "dev": 30, "test": 40}.items()):
        lines = "".join(json.dumps(row) + "\n" for row in labelled(count, seed))
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    words = ["--data", str(folder.parent), "--work", str(tmp_path / "work"), "--tasks", "imdb"]
    monkeypatch.setattr("sys.argv", ["label_next.py", *words, "--draws", "2", "--twice"])
    benchmark.main()
    first = capsys.readouterr().out
    assert "imdb, draw 1" in first and "| imdb | macro-F1 | 2 |" in first
    assert "Within the interval: " in first and "| imdb | 50 |" in first
    benchmark.main()
    assert "draw 1:" not in capsys.readouterr().out  # what is made is kept


def test_the_page_is_that_of_the_recorded_draws(module: Any) -> None:
    report, cases = module("label_runs.report"), module("label_runs.cases")
    recorded = json.loads((PAGES / "label-next.json").read_text("utf-8"))
    own = [cases.Case(**case) for case in recorded["cases"]]
    doublings = [cases.Doubling(**one) for one in recorded["doublings"]]
    assert (PAGES / "label-next.md").read_text("utf-8") == report.markdown(own, doublings)
    gains = [case.gain for case in own if case.task == own[0].task]
    theirs = ttest_1samp(gains, 0).confidence_interval(0.95)
    assert np.mean(gains) - report.interval(gains) == pytest.approx(theirs.low)
