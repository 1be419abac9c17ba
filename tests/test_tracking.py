from __future__ import annotations

import builtins
import io
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tasklm import tracking
from tasklm.errors import RecipeError
from tasklm.tracking import EventFile, LogFile, TensorBoard, Tracker, step_text

POINT = {"stage": "stage 1", "step": 30, "rate": 1e-3, "lm": 6.5, "tokens_per_second": 1200}


def tracker_of(
    folder: Path, tty: bool = False, verbose: bool = False
) -> tuple[Tracker, io.StringIO]:
    file = io.StringIO()
    sinks = [EventFile(folder / "events.jsonl"), LogFile(folder / "log.txt")]
    return Tracker(Console(file=file, force_terminal=tty, width=100), sinks, verbose), file


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def test_messages_and_events_reach_the_file_one_a_line(tmp_path: Path) -> None:
    tracker, out = tracker_of(tmp_path)
    tracker.say("a [bold] word")
    tracker.event("step", **POINT)
    events = events_of(tmp_path)
    assert all(
        event.pop("time") <= time.time() + 0.001 for event in events
    )  # it is rounded to milliseconds
    assert events == [
        {"event": "message", "text": "a [bold] word", "level": "note"},
        {"event": "step", **POINT},
    ]
    assert out.getvalue() == "a [bold] word\n"  # not taken for markup


@pytest.mark.parametrize("verbose", [False, True])
def test_details_are_recorded_and_shown_with_verbose_alone(tmp_path: Path, verbose: bool) -> None:
    tracker, out = tracker_of(tmp_path, verbose=verbose)
    tracker.say("train 80", "data")
    tracker.warn("uneven classes: add examples")
    tracker.detail("a row of 8 tokens: the cat")
    tracker.event("step", **POINT)
    short = ["data: train 80", "warning: uneven classes: add examples"]
    details = [
        "a row of 8 tokens: the cat",
        "stage 1, step 30: lm 6.500, learning rate 1.0e-03, 1.2k tokens/s",
    ]
    assert out.getvalue().splitlines() == (short + details if verbose else short)
    assert [
        line[21:] for line in (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    ] == short + details
    assert [event.get("level") for event in events_of(tmp_path)] == [
        "note",
        "warning",
        "detail",
        None,
    ]


def test_points_of_a_curve_are_shown_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now[0])
    tracker, out = tracker_of(tmp_path, verbose=True)
    for step in range(1, 101):
        now[0] += 1
        tracker.event("step", **{**POINT, "step": step})
    assert re.findall(r"step (\d+):", out.getvalue()) == ["1", "31", "61", "91"]


def test_the_numbers_of_a_step_are_in_words() -> None:
    point = {**POINT, "dev": 0.5, "tflops": 1.234, "of_ceiling": 0.567, "memory_gb": 7.89}
    losses, speed = "lm 6.500, dev 50.0, learning rate 1.0e-03", "1.2k tokens/s, 1.23 TFLOP/s"
    share = "57 % of this machine's peak"
    assert step_text(point) == f"stage 1, step 30: {losses}, {speed}, {share}, 7.9 GB"


def test_of_a_run_inside_another_only_warnings_and_progress_are_shown(tmp_path: Path) -> None:
    outer, out = tracker_of(tmp_path)
    inner = outer.inside("random selection")
    inner.sinks = [EventFile(tmp_path / "inner.jsonl")]
    inner.say("tiny model", "plan")
    inner.warn("something is wrong")
    assert out.getvalue() == "warning: something is wrong\n"
    with inner.progress("stage 1", 10) as bar:
        assert bar.name == "random selection: stage 1"
        assert (
            json.loads((tmp_path / "progress.json").read_text(encoding="utf-8"))["bars"][0]["title"]
            == "stage 1"
        )
    assert "plan: tiny model" in (tmp_path / "inner.jsonl").read_text(encoding="utf-8")
    assert not (tmp_path / "events.jsonl").exists()


def test_without_a_console_nothing_is_shown() -> None:
    with Tracker().progress("work", 3) as bar:
        bar.at(1, "note")
        assert not bar.views


def test_progress_is_recorded_at_most_once_a_second_with_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, seen = [100.0], []
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now[0])

    class Seen:
        def event(self, name: str, values: dict[str, Any]) -> None:
            assert name == "progress"
            seen.append(values["bars"])

    tracker = Tracker(sinks=[Seen()])
    with tracker.progress("stage 1", 1000) as bar:
        bar.at(600)  # an earlier process came so far
        for step in range(601, 641):
            now[0] += 0.125
            bar.at(step, "lm 3" if step == 610 else "")
        with tracker.progress("inside") as inner:
            inner.advance(2)
        now[0] += 40.0
        bar.total = 700
        bar.at(680)
    assert [[one["title"] for one in bars] for bars in seen] == [["stage 1"]] * 7 + [
        ["stage 1", "inside"]
    ] * 2 + [["stage 1"]] * 2 + [[]]
    assert [bars[0]["done"] for bars in seen[:7]] == [0, 600, 608, 616, 624, 632, 640]
    assert [bars[0]["rate"] for bars in seen[:6]] == [None] * 4 + [
        pytest.approx(8)
    ] * 2  # known after three seconds
    assert seen[7][1] == {"title": "inside", "done": 0.0, "total": None, "rate": None, "note": ""}
    # three positions are remembered, be they long ago: 44 steps in 40.5 seconds
    assert seen[-2][0] == {
        "title": "stage 1",
        "done": 680.0,
        "total": 700.0,
        "rate": pytest.approx(44 / 40.5),
        "note": "lm 3",
    }


def test_of_progress_only_the_latest_is_kept_and_failed_work_stays_on_record(
    tmp_path: Path,
) -> None:
    tracker = Tracker(sinks=[EventFile(tmp_path / "events.jsonl")])

    def kept() -> Any:
        return json.loads((tmp_path / "progress.json").read_text(encoding="utf-8"))

    with tracker.progress("search", 3) as bar:
        bar.advance(2, "näher")
        assert kept()["bars"] == [
            {"title": "search", "done": 2.0, "total": 3.0, "rate": None, "note": "näher"}
        ]
    assert kept()["bars"] == [] and kept()["time"] == pytest.approx(time.time(), abs=60)
    with pytest.raises(ZeroDivisionError), tracker.progress("stage 1", 100) as bar:
        bar.at(43)
        raise ZeroDivisionError
    assert [one["done"] for one in kept()["bars"]] == [43]
    with tracker.progress("next"):
        assert [one["title"] for one in kept()["bars"]] == ["next"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "progress.json"
    ]  # no event was written


def test_threads_may_move_bars_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "RECORD_EVERY", 1e-9)
    with (
        Tracker(sinks=[EventFile(tmp_path / "events.jsonl")]).progress("search", 400) as bar,
        ThreadPoolExecutor(4) as pool,
    ):
        for done in [pool.submit(bar.at, number) for number in range(400)]:
            done.result()
        assert json.loads((tmp_path / "progress.json").read_text())["bars"][0]["title"] == "search"


def test_tensorboard_reads_the_numbers_of_steps_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = Tracker(None, [TensorBoard(tmp_path)])
    tracker.say("not a number")
    tracker.event("step", **POINT)
    tracker.event("step", **{**POINT, "step": 60, "lm": 5.25})
    tracker.event("step", stage="stage 2, seed 1", step=7, dev=0.5)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {
        "stage 1/rate",
        "stage 1/lm",
        "stage 1/tokens_per_second",
        "stage 2, seed 1/dev",
    }
    assert [(event.step, event.value) for event in found.Scalars("stage 1/lm")] == [
        (30, 6.5),
        (60, 5.25),
    ]
    assert [(event.step, event.value) for event in found.Scalars("stage 2, seed 1/dev")] == [
        (7, 0.5)
    ]


def test_without_tensorboard_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "tensorboard" or name == "torch.utils.tensorboard":
            raise ImportError(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        RecipeError,
        match=r"hardware\.tensorboard = true needs TensorBoard: pip install 'tasklm\[track\]'",
    ):
        TensorBoard(tmp_path)
