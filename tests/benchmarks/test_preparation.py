"""The benchmark of what comes before training: a small run of it names every step, and the same
data give the same digests.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tasklm.recipe.toml import load
from tests.conftest import sentences, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("preparation")


def test_every_step_is_timed_and_gives_the_same_again(benchmark: Any, tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "corpus.jsonl", [{"text": " ".join(sentences(12, seed))} for seed in range(60)]
    )
    for name, seed in (("train", 100), ("dev", 200), ("test", 300)):
        rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(sentences(20, seed))]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    recipe = (
        '[data]\ntrain = "train.jsonl"\ndev = "dev.jsonl"\ntest = '
        '"test.jsonl"\ncorpus = ["corpus.jsonl"]\nleaks = "drop"\n'
    )
    (tmp_path / "recipe.toml").write_text(
        recipe + "[select]\npassages = 20\n[tokens]\nvocabulary = 300\n", encoding="utf-8"
    )
    clocks = [benchmark.Clock(), benchmark.Clock()]
    for number, clock in enumerate(clocks):
        (tmp_path / str(number)).mkdir()
        benchmark.prepare(load(tmp_path / "recipe.toml", {}), tmp_path / str(number), clock)
    assert len(clocks[0].steps) == 10
    digests = [
        {name: step["digest"] for name, step in clock.steps.items() if "digest" in step}
        for clock in clocks
    ]
    assert len(digests[0]) == 8
    assert digests[0] == digests[1]


def test_cpu_seconds_count_processes_that_still_run(benchmark: Any) -> None:
    def others() -> float:
        return float(benchmark.cpu_seconds()) - time.process_time()

    before = others()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        tries = 0
        while others() - before < 0.3 and tries < 400:
            time.sleep(0.05)
            tries += 1
        busy.kill()
    assert tries < 400, "the other process worked, and its CPU seconds were not counted"
