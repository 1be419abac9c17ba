"""Work in processes of their own: what they write, what they say, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasklm.comparing import processes
from tasklm.comparing.entries import Entry
from tasklm.comparing.processes import THREADS, in_a_process
from tasklm.comparing.training import Order, TrainedContestant, peak_memory
from tasklm.comparing.worker import ORPHANED
from tasklm.errors import RunError
from tasklm.recipe.toml import load
from tasklm.storage.files import write_json
from tests.conftest import labelled, write_jsonl

PLAIN = {"shows": False, "verbose": False, "modules": [], "title": "test"}


def order_of(folder: Path, name: str, kind: str = "classify") -> Order:
    files = {
        f"data.{split}": str(write_jsonl(folder / f"{split}.jsonl", labelled(40, seed)))
        for seed, split in enumerate(("train", "dev", "test"))
    }
    recipe = load(None, {**files, "data.kind": kind, "hardware.threads": 1})
    return Order(Entry(name, name), recipe, "accuracy", 60.0, folder, folder / "runs")


def test_a_contestant_is_trained_and_one_that_fails_says_why(tmp_path: Path) -> None:
    order = order_of(tmp_path, "majority")
    in_a_process({**PLAIN, "order": order.to_dict()}, tmp_path, 1)
    trained = TrainedContestant.read(tmp_path)
    assert trained.labels["test"] == ["no"] * 40 and trained.cost.seconds >= 0
    assert 1e8 < trained.cost.memory < 1e11 and trained.cost.device == "cpu"
    assert not (tmp_path / "work.json").exists()
    wrong = order_of(tmp_path, "majority", kind="regress")
    with pytest.raises(RunError, match=r"train.jsonl, line 1: the label .* not a number"):
        in_a_process({**PLAIN, "order": wrong.to_dict()}, tmp_path, 1)
    assert not (tmp_path / "failed.json").exists()


def test_an_order_is_the_same_in_another_process(tmp_path: Path) -> None:
    order = order_of(tmp_path, "tfidf")
    assert Order.from_dict(order.to_dict()) == order


def test_a_process_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    """Its standard input ends when the command does, however that ends."""
    (tmp_path / "asleep.py").write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    write_json(tmp_path / "work.json", {**PLAIN, "modules": ["asleep"]})
    command = [sys.executable, "-m", "tasklm.comparing.worker", str(tmp_path / "work.json")]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(300) == ORPHANED


class Child:
    """A process as far as waiting for it goes."""

    def __init__(self, wait: Callable[[], int]) -> None:
        self.wait, self.signals, self.environment = wait, list[int](), dict[str, str]()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None: ...

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def started(self, command: list[str], env: dict[str, str], **more: Any) -> Child:
        self.environment = env
        return self


@pytest.mark.parametrize(
    ("status", "words"),
    [(-9, "lack of memory"), (-15, "ended by signal 15"), (1, "ended with status 1")],
)
def test_a_process_that_ends_badly_has_its_reason(
    status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(lambda: status)
    monkeypatch.setattr(processes.subprocess, "Popen", child.started)
    with pytest.raises(RunError, match=words):
        in_a_process({}, tmp_path, 3)
    assert all(child.environment[name] == "3" for name in THREADS)
    assert child.environment["HF_HUB_OFFLINE"] == "1"  # nothing is downloaded


def test_an_interrupt_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    child = Child(interrupted)
    monkeypatch.setattr(processes.subprocess, "Popen", child.started)
    with pytest.raises(KeyboardInterrupt):
        in_a_process({}, tmp_path, 1)
    assert child.signals == [signal.SIGINT]


def test_the_peak_of_memory_never_falls() -> None:
    before = peak_memory()
    block = bytearray(50_000_000)
    assert peak_memory() >= before > 1e7 and len(block) == 50_000_000
    del block
    assert peak_memory() >= before
