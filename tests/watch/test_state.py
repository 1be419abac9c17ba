"""The state of a watched run is what its folder says, at every step, and after its end or death; it
stays small.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasklm.artifacts import Artefacts
from tasklm.evaluate.scores import Spread, spread_text
from tasklm.storage.files import locked
from tasklm.watch import charts, state
from tasklm.watch.state import Lock, Watched
from tests.watch.growing_run import SINGLE, SPREAD, GrowingRun

DIES = """
import os, signal, sys
from pathlib import Path
from tasklm.artifacts import Artefacts
from tasklm.storage.files import locked
from tasklm.tracking import EventFile, Tracker
folder = Path(sys.argv[1])
def train(part):
    with Tracker(sinks=[EventFile(folder / "events.jsonl")]).progress("stage 1", 100) as bar:
        bar.at(43, "lm 4.2")
        print("trains", flush=True)
        signal.pause()
with locked(folder):
    Artefacts(folder).build("stage1", "key", train)
"""


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "first")


def states(state: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in state["flow"]}


def at_step(state: dict[str, Any]) -> str:
    assert state["status"] == "running"
    (now,) = [step["name"] for step in state["flow"] if step["state"] == "now"]
    return str(now)


def curve(state: dict[str, Any], group: str, chart: str) -> dict[str, list[list[float]]]:
    (found,) = [one for one in state["curves"] if one["of"] + one["title"] == group]
    return {
        line["name"]: line["points"]
        for one in found["charts"]
        if one["title"] == chart
        for line in one["lines"]
    }


def an_hour_passes(folder: Path) -> None:
    """Makes all files older: what happens within a tick of the file system's clock has the same
    time.
    """
    for path in folder.rglob("*"):
        when = path.stat().st_mtime - 3600
        os.utime(path, (when, when))


def test_every_artefact_of_the_flow_is_a_step_under_way_while_it_is_built(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "first", compare=("random",))
    watched, seen = Watched(run.folder), []
    assert watched.state()["status"] == "waiting"

    def built(artefacts: Artefacts, name: str) -> None:
        artefacts.build(name, "key", lambda folder: seen.append((name, at_step(watched.state()))))

    with locked(run.folder):
        assert at_step(watched.state()) == "check"
        for name in ("decontaminated", "plan", "selected", "tokens", "stage1", "stage1-2"):
            built(run.artefacts, name)
        for name in ("seed-1", "seed-2"):
            built(Artefacts(run.folder / "stage2"), name)
        built(Artefacts(run.folder / "stage2-2"), "seed-1")
        built(run.artefacts, "predictions")
        for name in ("tokens", "stage1", "predictions"):
            built(Artefacts(run.folder / "compare" / "random"), name)
        built(run.artefacts, "model")
        run.finish()
    assert seen == [
        ("decontaminated", "check"),
        ("plan", "check"),
        ("selected", "select"),
        ("tokens", "tokenize"),
        ("stage1", "stage 1"),
        ("stage1-2", "stage 1"),
        ("seed-1", "stage 2"),
        ("seed-2", "stage 2"),
        ("seed-1", "stage 2"),
        ("predictions", "evaluate"),
        ("tokens", "compare"),
        ("stage1", "compare"),
        ("predictions", "compare"),
        ("model", "report"),
    ]
    state = watched.state()
    assert (
        state["status"] == "finished"
        and set(states(state).values()) == {"done"}
        and state["report"] == "new"
    )


def test_a_run_without_a_corpus_or_comparisons_has_no_such_steps(run: GrowingRun) -> None:
    assert list(states(Watched(run.folder).state())) == [
        "check",
        "select",
        "tokenize",
        "stage 1",
        "stage 2",
        "evaluate",
        "report",
    ]
    (run.folder / "recipe.toml").write_text("[data]\ntrain = 'a'\n", encoding="utf-8")
    assert list(states(Watched(run.folder).state())) == [
        "check",
        "tokenize",
        "stage 1",
        "stage 2",
        "evaluate",
        "report",
    ]


def test_a_process_that_is_killed_leaves_a_stopped_run_and_one_that_goes_on_is_running(
    run: GrowingRun,
) -> None:
    run.build("tokens")
    process = subprocess.Popen(
        [sys.executable, "-c", DIES, str(run.folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "trains\n"
    watched = Watched(run.folder)
    alive = watched.state()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    dead = watched.state()
    assert (at_step(alive), dead["status"], states(dead)["stage 1"], states(dead)["tokenize"]) == (
        "stage 1",
        "stopped",
        "stopped",
        "done",
    )
    assert [(bar["title"], bar["done"], bar["total"], bar["note"]) for bar in dead["bars"]] == [
        ("stage 1", 43, 100, "lm 4.2")
    ]
    an_hour_passes(run.folder)
    with locked(
        run.folder
    ):  # the same command again; what it has not come to yet is not shown as done
        again = watched.state()
        assert (
            at_step(again) == "check"
            and states(again)["tokenize"] == "next"
            and again["bars"] == []
        )
    died_early = watched.state()
    assert (died_early["status"], states(died_early)["stage 1"], died_early["bars"]) == (
        "stopped",
        "stopped",
        [],
    )


def test_a_run_that_was_asked_for_less_has_ended(run: GrowingRun) -> None:
    with locked(run.folder):
        run.build("selected")
    state = Watched(run.folder).state()
    assert (state["status"], states(state)["select"], states(state)["tokenize"]) == (
        "ended",
        "done",
        "next",
    )


def test_a_report_of_an_earlier_run_is_not_taken_for_this_ones(run: GrowingRun) -> None:
    run.finish()
    os.utime(run.folder / "report.html", (1, 1))
    with locked(run.folder):
        run.build("plan")
    state = Watched(run.folder).state()
    assert (state["status"], state["report"]) == ("ended", "old")


def test_a_free_lock_is_asked_once_and_a_new_process_is_seen(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, asked = Lock(run.folder), []
    plain = state.fcntl.flock
    monkeypatch.setattr(
        state.fcntl, "flock", lambda file, how: (asked.append(how), plain(file, how))[1]
    )
    assert not lock.held() and lock.taken_at() is None
    (run.folder / ".lock").touch()  # a process that is about to take it
    assert not lock.held() and lock.taken_at() is None and asked == []
    with locked(run.folder):
        asked.clear()
        assert lock.held() and lock.held() and len(asked) == 2
    an_hour_passes(run.folder)
    asked.clear()
    assert not lock.held() and not lock.held() and len(asked) == 1
    with locked(run.folder):  # nobody stands in the way
        assert lock.held()


def test_time_left_counts_from_when_progress_was_written(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars = [
        {"title": "stage 1", "done": 40.0, "total": 100.0, "rate": 2.0, "note": "lm 3"},
        {"title": "search", "done": 3.0, "total": None, "rate": 1.0, "note": ""},
        {"title": "late", "done": 99.0, "total": 100.0, "rate": 1.0, "note": ""},
    ]
    with locked(run.folder):
        written = (run.folder / ".lock").stat().st_mtime + 5
        (run.folder / "progress.json").write_text(
            json.dumps({"time": written, "bars": bars}), encoding="utf-8"
        )
        (run.folder / "clock.json").write_text('{"seconds": 100.0}', encoding="utf-8")
        os.utime(run.folder / "clock.json", (written - 60, written - 60))  # of an earlier process
        monkeypatch.setattr(state.time, "time", lambda: written + 10)
        found = Watched(run.folder).state()
    # 60 steps at 2 a second, 10 seconds ago; no total; 1 more step, which takes longer than it
    # should
    assert [bar["left"] for bar in found["bars"]] == [20.0, None, 0.0]
    assert found["seconds"] == 115.0 and found["minutes"] == 20.0


def test_curves_follow_and_what_is_trained_again_is_forgotten(run: GrowingRun) -> None:
    watched = Watched(run.folder)
    for step in (10, 20, 30):
        run.point("stage 1", step, lm=9.0 - step / 10, task=0.7)
    run.point("stage 2, seed 1", 5, task=0.6)
    run.point("stage 2, seed 1", 10, task=0.5, dev=0.75)
    run.point("stage 2, seed 2", 10, task=0.4, dev=0.8)
    state = watched.state()
    assert [group["title"] for group in state["curves"]] == ["stage 2", "stage 1"]
    assert curve(state, "stage 1", "loss") == {
        "lm": [[10, 8], [20, 7], [30, 6]],
        "task": [[10, 0.7], [20, 0.7], [30, 0.7]],
    }
    assert curve(state, "stage 2", "dev score") == {"seed 1": [[10, 0.75]], "seed 2": [[10, 0.8]]}
    assert curve(state, "stage 2", "loss") == {
        "seed 1": [[5, 0.6], [10, 0.5]],
        "seed 2": [[10, 0.4]],
    }
    assert curve(state, "stage 2", "tokens per second") == {"seed 2": [[10, 40010]]}
    run.point(
        "stage 1", 20, lm=5.0, task=float("nan")
    )  # went back to a checkpoint, and a loss is not finite
    state = watched.state()
    assert [group["title"] for group in state["curves"]] == ["stage 1"]
    assert curve(state, "stage 1", "loss") == {"lm": [[10, 8], [20, 5]], "task": [[10, 0.7]]}
    json.dumps(state, allow_nan=False)


def test_several_trainings_share_the_charts_of_their_stage(run: GrowingRun) -> None:
    for stage in ("stage 1", "stage 1, training 2"):
        run.point(stage, 10, task=0.9)
    for stage in ("stage 2, seed 1", "stage 2, training 2, seed 1"):
        run.point(stage, 10, task=0.5, dev=0.75)
    state = Watched(run.folder).state()
    assert [group["title"] for group in state["curves"]] == ["stage 2", "stage 1"]
    assert curve(state, "stage 1", "loss") == {"task": [[10, 0.9]], "training 2": [[10, 0.9]]}
    assert curve(state, "stage 2", "dev score") == {
        "seed 1": [[10, 0.75]],
        "training 2, seed 1": [[10, 0.75]],
    }
    run.point(
        "stage 1, training 2", 5, task=0.8
    )  # done again: what was made of it goes, the first training stays
    state = Watched(run.folder).state()
    assert curve(state, "stage 1", "loss") == {"task": [[10, 0.9]], "training 2": [[5, 0.8]]}
    assert curve(state, "stage 2", "dev score") == {"seed 1": [[10, 0.75]]}
    run.point("stage 1", 5, task=0.7)  # all take its number of steps
    state = Watched(run.folder).state()
    assert [group["title"] for group in state["curves"]] == ["stage 1"]
    assert curve(state, "stage 1", "loss") == {"task": [[5, 0.7]]}


def test_a_stage_of_an_unknown_name_takes_no_curve_away(run: GrowingRun) -> None:
    for stage in ("stage 1", "stage 2, seed 1", "another stage"):
        run.point(stage, 10, task=0.5)
    run.point("stage 2, seed 1", 20, task=0.4)
    state = Watched(run.folder).state()
    assert curve(state, "stage 1", "loss") == {"task": [[10, 0.5]]} and curve(
        state, "another stage", "loss"
    ) == {"task": [[10, 0.5]]}
    assert curve(state, "stage 2", "loss") == {"seed 1": [[10, 0.5], [20, 0.4]]}


def test_lines_that_are_half_written_or_broken_do_no_harm(run: GrowingRun) -> None:
    watched, events = Watched(run.folder), run.folder / "events.jsonl"
    run.tracker.say("one")
    with events.open("a", encoding="utf-8") as file:
        file.write('{"event": "message", "time": 5')
        file.flush()
        assert [one["text"] for one in watched.state()["messages"]] == ["one"]
        file.write(
            '0, "text": "two"}\n{"event": "mess{"event": '
            '"message", "time": 60, "text": "lost"}\n[1]\n'
        )
    run.tracker.say("three")
    assert [one["text"] for one in watched.state()["messages"]] == [
        "three",
        "one",
        "two",
    ]  # by their time, the latest first
    events.write_text('{"event": "message", "time": 70, "text": "another run"}\n', encoding="utf-8")
    assert [one["text"] for one in watched.state()["messages"]] == ["another run"]


def test_comparisons_are_followed_in_their_own_folders(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "first", compare=("task-only", "random"))
    other = GrowingRun(run.folder / "compare" / "random")
    with locked(run.folder):
        run.point("stage 1", 10, lm=3.0)
        other.point("stage 1", 20, lm=5.0)
        other.tracker.say("from there")
        with other.tracker.progress("stage 1", 40) as bar:
            bar.at(20)
            state = Watched(run.folder).state()
    assert [(group["of"], group["title"]) for group in state["curves"]] == [
        ("random", "stage 1"),
        ("", "stage 1"),
    ]  # what is done is first
    run.finish()
    done = Watched(run.folder).state()
    assert done["status"] == "finished"
    assert [(group["of"], group["title"]) for group in done["curves"]] == [
        ("", "stage 1"),
        ("random", "stage 1"),
    ]
    assert (state["doing"], state["bars"][0]["title"], state["latest"]["lm"]) == (
        "random",
        "stage 1",
        5.0,
    )
    assert state["messages"][0] == {
        "time": state["messages"][0]["time"],
        "of": "random",
        "text": "from there",
    }


def test_scores_are_written_as_the_score_table_writes_them(run: GrowingRun) -> None:
    assert Watched(run.folder).state()["scores"] is None
    run.finish("A verdict.")
    scores = Watched(run.folder).state()["scores"]
    assert scores["verdict"] == "A verdict." and scores["metric"] == "macro f1"
    written = [(row["dev"], row["test"]) for row in scores["rows"]]
    assert written == [
        (spread_text(Spread(**SINGLE)), spread_text(None)),
        (spread_text(Spread(**SPREAD)), spread_text(Spread(**SPREAD))),
    ]


def test_the_state_of_a_very_long_run_stays_small(run: GrowingRun) -> None:
    points = 3 * charts.KEPT
    with (run.folder / "events.jsonl").open("w", encoding="utf-8") as file:
        for seed in range(1, 31):
            for step in range(1, (points if seed == 1 else 300) + 1):
                values = {"step": step, "rate": 1 / step, "task": 1 / 3, "dev": 0.5}
                file.write(
                    json.dumps(
                        {"event": "step", "time": step, "stage": f"stage 2, seed {seed}", **values}
                    )
                    + "\n"
                )
        for _ in range(100):
            file.write(json.dumps({"event": "message", "time": 1, "text": "x" * 5000}) + "\n")
    watched = Watched(run.folder)
    state = watched.state()
    lines = [
        line["points"]
        for group in state["curves"]
        for chart in group["charts"]
        for line in chart["lines"]
    ]
    assert sum(map(len, lines)) <= charts.MOST_POINTS
    assert len(json.dumps(state)) < 250_000
    kept = watched._histories[""].curves["stage 2, seed 1"]["task"]
    assert len(kept) <= charts.KEPT and (kept[0][0], kept[-1][0]) == (1, points)
    assert [x for x, _ in kept] == sorted({x for x, _ in kept})
