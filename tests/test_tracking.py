from __future__ import annotations

import builtins
import io
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tasklm import tracking
from tasklm.errors import RecipeError
from tasklm.tracking import Bar, EventFile, TensorBoard, Tracker, WrittenBar

POINT = {"stage": "stage 1", "step": 30, "rate": 1e-3, "lm": 6.5, "tokens_per_second": 1200}


def test_messages_and_events_reach_the_file_one_a_line(tmp_path: Path) -> None:
    out = io.StringIO()
    tracker = Tracker(Console(file=out), [EventFile(tmp_path / "events.jsonl")])
    tracker.say("a [bold] word")
    tracker.event("step", **POINT)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert all(event.pop("time") <= time.time() + 0.001 for event in events)  # it is rounded to milliseconds
    assert events == [{"event": "message", "text": "a [bold] word"}, {"event": "step", **POINT}]
    assert out.getvalue() == "a [bold] word\n"  # not taken for markup


def test_without_a_console_a_bar_shows_nothing() -> None:
    with Tracker().progress("work", 3) as bar:
        assert type(bar) is Bar
        bar.at(1, "note")


def test_a_pipe_gets_a_line_now_and_then_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with Tracker(Console(file=out, force_terminal=False)).progress("stage 1", 100) as bar:
        assert isinstance(bar, WrittenBar)
        for seconds, position in ((6, 60), (16, 70), (20, 75)):  # resumed at 60, after 6 s; 20 is too soon after 16
            now[0] = 100.0 + seconds
            bar.at(position, f"lm {position}")
        bar.total(90)  # the schedule was replanned
        now[0] = 140.0
        bar.at(80, "lm 80")
    # 10 steps since 60 in 10 s, 30 to go; then 20 in 34 s, 10 to go
    assert out.getvalue().splitlines() == ["stage 1: 70%, about 30 s left  lm 70", "stage 1: 89%, about 17 s left  lm 80"]


def test_progress_is_recorded_at_most_once_a_second_with_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
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
        bar.total(700)
        bar.at(680)
    assert [[one["title"] for one in bars] for bars in seen] == [["stage 1"]] * 7 + [["stage 1", "inside"]] * 2 + [["stage 1"]] * 2 + [[]]
    assert [bars[0]["done"] for bars in seen[:7]] == [0, 600, 608, 616, 624, 632, 640]
    assert [bars[0]["rate"] for bars in seen[:3]] == [None, None, pytest.approx(8)]
    assert seen[7][1] == {"title": "inside", "done": 0.0, "total": None, "rate": None, "note": ""}
    # 40 steps in 40 s after a time at 8 a second, averaged over a minute
    kept = math.exp(-40 / 60)
    last = seen[-2][0]
    assert last == {"title": "stage 1", "done": 680.0, "total": 700.0, "rate": pytest.approx(8 * kept + 1 - kept), "note": "lm 3"}


def test_of_progress_only_the_latest_is_kept_and_failed_work_stays_on_record(tmp_path: Path) -> None:
    tracker = Tracker(sinks=[EventFile(tmp_path / "events.jsonl")])

    def kept() -> Any:
        return json.loads((tmp_path / "progress.json").read_text(encoding="utf-8"))

    with tracker.progress("search", 3) as bar:
        bar.advance(2, "näher")
        assert kept()["bars"] == [{"title": "search", "done": 2.0, "total": 3.0, "rate": None, "note": "näher"}]
    assert kept()["bars"] == [] and kept()["time"] == pytest.approx(time.time(), abs=60)
    with pytest.raises(ZeroDivisionError), tracker.progress("stage 1", 100) as bar:
        bar.at(43)
        raise ZeroDivisionError
    assert [one["done"] for one in kept()["bars"]] == [43]
    with tracker.progress("next"):
        assert [one["title"] for one in kept()["bars"]] == ["next"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["progress.json"]  # no event was written


def test_threads_may_move_bars_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "RECORD_EVERY", 1e-9)
    with Tracker(sinks=[EventFile(tmp_path / "events.jsonl")]).progress("search", 400) as bar, ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(bar.at, number) for number in range(400)]:
            done.result()
        assert json.loads((tmp_path / "progress.json").read_text())["bars"][0]["title"] == "search"


def test_a_drawn_bar_keeps_its_note_until_there_is_another() -> None:
    out = io.StringIO()
    tracker = Tracker(Console(file=out, force_terminal=True, width=100))
    with tracker.progress("stage 1", 100) as bar:
        bar.at(1, "lm 3.5")
        bar.at(2)
        assert tracker._display is not None
        (task,) = tracker._display.tasks
        assert (task.completed, task.fields["note"]) == (2, "lm 3.5")


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
    assert set(found.Tags()["scalars"]) == {"stage 1/rate", "stage 1/lm", "stage 1/tokens_per_second", "stage 2, seed 1/dev"}
    assert [(event.step, event.value) for event in found.Scalars("stage 1/lm")] == [(30, 6.5), (60, 5.25)]
    assert [(event.step, event.value) for event in found.Scalars("stage 2, seed 1/dev")] == [(7, 0.5)]


def test_without_tensorboard_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "tensorboard" or name == "torch.utils.tensorboard":
            raise ImportError(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RecipeError, match=r"hardware\.tensorboard = true needs TensorBoard: pip install 'tasklm\[track\]'"):
        TensorBoard(tmp_path)
