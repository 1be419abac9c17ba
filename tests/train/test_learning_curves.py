from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.device.ranks import Ranks
from tasklm.train.learning_curves import POINTS, Curve, Headline, Speed
from tasklm.train.steps import Record

CPU = Machine(torch.device("cpu"), False, 1)


def record(step: int, steps: int, losses: dict[str, float], **changes: object) -> Record:
    named = {name: torch.tensor(value) for name, value in losses.items()}
    made = Record(step, steps, 0.5, named, {}, 0, 0.0, 0.0, [])
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_point_is_the_mean_of_each_loss_since_the_last_point(tmp_path: Path) -> None:
    steps = 3 * POINTS  # a point every third step
    curve = Curve(tmp_path / "curve.json", 2e-3)
    assert curve.take(record(1, steps, {"task": 1.0, "lm on task": 8.0})) is None
    assert curve.take(record(2, steps, {"lm": 6.0})) is None
    first = curve.take(record(3, steps, {"lm": 7.0}))
    assert first == {"step": 3, "rate": 1e-3, "task": 1.0, "lm on task": 8.0, "lm": 6.5}
    for step in (4, 5):
        assert curve.take(record(step, steps, {"lm": 4.0})) is None
    second = curve.take(record(6, steps, {"lm": 1.0}))
    assert second == {"step": 6, "rate": 1e-3, "lm": 3.0}  # nothing of the first point is left
    curve.write()
    assert json.loads((tmp_path / "curve.json").read_text()) == [first, second]


def test_scores_and_the_last_step_make_a_point_of_their_own() -> None:
    curve = Curve(None, 1.0)
    assert curve.take(record(1, 1000, {"task": 2.0}, scores={"dev": 0.75})) == {
        "step": 1,
        "rate": 0.5,
        "task": 2.0,
        "dev": 0.75,
    }
    assert curve.take(record(2, 1000, {"task": 2.0})) is None
    assert curve.take(record(1000, 1000, {"task": 4.0})) == {"step": 1000, "rate": 0.5, "task": 3.0}


def test_the_file_has_the_first_point_at_once_and_later_ones_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("tasklm.train.learning_curves.time.monotonic", lambda: clock[0])
    path = tmp_path / "curve.json"

    def steps_in_file() -> list[int]:
        return [point["step"] for point in json.loads(path.read_text())]

    curve = Curve(path, 1.0)
    for step, seconds, last in ((1, 0, 1), (2, 0.5, 1), (3, 1, 3), (4, 1.5, 3)):
        clock[0] = 100.0 + seconds
        curve.take(record(step, 9, {"lm": 1.0}))
        assert steps_in_file() == list(range(1, last + 1))
    curve.write()
    assert steps_in_file() == [1, 2, 3, 4]


def test_steps_done_again_after_an_interruption_replace_their_points(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    first = Curve(path, 1.0)
    for step in (1, 2, 3):
        first.take(record(step, 5, {"lm": float(step)}))
    first.write()
    resumed = Curve(path, 1.0)  # the checkpoint was of step 1
    resumed.take(record(2, 5, {"lm": 20.0}))
    assert [(point["step"], point["lm"]) for point in json.loads(path.read_text())] == [
        (1, 1.0),
        (2, 20.0),
    ]


def test_speed_is_that_since_the_last_point() -> None:
    speed = Speed(CPU, ceiling=4e12)
    found = speed.since_last(record(1, 9, {}, tokens=30_000, flops=6e12, seconds=3.0))
    assert found == {"tokens_per_second": 10_000, "tflops": 2.0, "of_ceiling": 0.5}
    found = speed.since_last(record(2, 9, {}, tokens=32_000, flops=7e12, seconds=5.0))
    assert found == {"tokens_per_second": 1_000, "tflops": 0.5, "of_ceiling": 0.125}


def test_several_processes_have_the_ceiling_of_all_and_a_gpu_shows_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Machine, "peak_bytes", lambda self: 12_340_000_000)
    speed = Speed(dataclasses.replace(CPU, ranks=Ranks(0, 4)), ceiling=1e12)
    found = speed.since_last(record(1, 9, {}, tokens=100, flops=2e12, seconds=1.0))
    assert found == {"tokens_per_second": 100, "tflops": 2.0, "of_ceiling": 0.5, "memory_gb": 12.34}


def test_the_headline_is_the_loss_on_text_and_then_the_best_dev_score() -> None:
    headline = Headline()
    points = [
        {"step": 1, "rate": 1.0, "task": 1.5, "lm on task": 6.5},
        {"step": 2, "rate": 1.0, "task": 1.5, "lm on task": 6.4, "lm": 7.25},
        {
            "step": 3,
            "rate": 1.0,
            "task": 1.5,
            "lm on task": 6.3,
        },  # nothing of the selected text: the last number stays
        {"step": 4, "rate": 1.0, "task": 0.5, "dev": 0.462},
        {"step": 5, "rate": 1.0, "task": 0.4, "dev": 0.3},
        {"step": 6, "rate": 1.0, "task": 0.3},
    ]
    assert [headline.text(point) for point in points] == [
        "loss 6.50",
        "loss 7.25",
        "",
        *["best dev 46.2"] * 3,
    ]
    assert (
        Headline().text(
            {"step": 1, "rate": 1.0, "generator": 5.0, "discriminator": 0.25, "task": 2.0}
        )
        == "loss 0.25"
    )
    assert Headline().text({"step": 1, "rate": 1.0, "task": 2.0, "dev": -0.1}) == "best dev -10.0"
