"""Latency is measured in turns; no test says how long anything takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tasklm.comparing import latency
from tasklm.comparing.latency import Measured, measure, unsteadiness
from tasklm.comparing.results import Latency
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT

EXAMPLES = [Example((f"text {number}",), "label") for number in range(70)]


class Recorder:
    """A model that notes when it was asked what."""

    def __init__(self, name: str, calls: list[tuple[str, int]], texts: set[str]) -> None:
        self.name, self.calls, self.texts = name, calls, texts

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        assert all(example.label is None for example in examples)
        self.calls.append((self.name, len(examples)))
        self.texts |= {example.text for example in examples}
        return [""] * len(examples)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves by one millisecond whenever it is read."""
    now = [0.0]

    def tick() -> float:
        now[0] += 0.001
        return now[0]

    monkeypatch.setattr(latency.time, "perf_counter", tick)


@pytest.mark.usefixtures("ticking")
def test_models_answer_the_same_texts_in_turns_then_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency, "BATCHES", 2)
    calls: list[tuple[str, int]] = []
    texts: dict[str, set[str]] = {name: set() for name in "abc"}
    models = {name: Recorder(name, calls, texts[name]) for name in "abc"}
    measured = measure(models, EXAMPLES, SILENT)
    warm = 3 * latency.WARM_UP
    single = [name for name, _ in calls[warm : warm + 3 * 70]]
    assert [size for _, size in calls[: warm + 210]] == [1] * (warm + 210)
    assert "".join(single[:9]) == "abcbcacab"  # another one begins each turn
    assert calls[warm + 210 :] == [("a", 32), ("b", 32), ("c", 32), ("b", 32), ("c", 32), ("a", 32)]
    assert texts["a"] == texts["b"] == texts["c"] == {one.text for one in EXAMPLES}
    assert measured.texts == 70 and set(measured.latencies) == set("abc")
    one = measured.latencies["a"]
    assert one.median == pytest.approx(0.001) and one.per_second == pytest.approx(32 / 0.001)


@pytest.mark.usefixtures("ticking")
def test_a_slow_machine_measures_fewer_texts_but_some() -> None:
    calls: list[tuple[str, int]] = []
    measured = measure({"a": Recorder("a", calls, set())}, EXAMPLES, SILENT, seconds=0.0)
    assert measured.texts == latency.FEWEST and ("a", 32) in calls


def test_few_texts_are_one_batch() -> None:
    calls: list[tuple[str, int]] = []
    measured = measure({"a": Recorder("a", calls, set())}, EXAMPLES[:5], SILENT)
    assert calls[-1] == ("a", 5) and measured.texts == 5


def test_unsteadiness_is_the_largest_change_between_the_halves() -> None:
    assert unsteadiness({"a": [1.0, 1.0, 2.0, 2.0], "b": [1.0, 1.0]}) == 0.5
    assert unsteadiness({"a": [1.0]}) == 0.0 and unsteadiness({}) == 0.0


def test_measurements_are_kept(tmp_path: Path) -> None:
    measured = Measured({"a": Latency(0.1, 0.2, 3.0)}, 9, 0.1, "cuda")
    measured.write(tmp_path)
    assert Measured.read(tmp_path) == measured
