"""A whole study in processes: what runs share is built once, and what is done is not done again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tasklm
from tasklm.cli.app import app
from tasklm.corpus.processes import usable_cores
from tasklm.errors import RecipeError, RunError
from tasklm.recipe.toml import load
from tasklm.studying import flow, running
from tasklm.studying.jobs import jobs_of
from tasklm.studying.order import Order
from tasklm.studying.results import Outcome
from tasklm.studying.running import is_done, run_all
from tasklm.studying.study import load_studies, load_study
from tasklm.tracking import SILENT, Tracker
from tests.studying.small import QUICK, Here, classes, corpus, study, write_task

STUDY = """
title = "A small study"
source = "A paper, table 1"
tasks = ["one", "two"]

[[rows]]
name = "a"
published = { one = 80.0 }

[[rows]]
name = "b"
recipe = { "finetune.epochs" = 2 }

[[rows]]
name = "too wide"
recipe = { "model.heads" = 5 }

[[claims]]
text = "More epochs are better"
better = "b"
than = "a"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one task whose data is there, which has been run; one of its rows fails."""
    folder = tmp_path_factory.mktemp("study")
    write_task(folder / "tasks" / "one", classes())
    corpus(folder)
    (folder / "small.toml").write_text(STUDY, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(place: Path) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.subprocess, "Popen", Here)
        return run(place)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.subprocess, "Popen", Here)


def run(place: Path) -> Outcome:
    return tasklm.study(
        place / "small.toml",
        data=place / "tasks",
        corpus=place / "corpus.jsonl",
        out=place / "out",
        at_once=2,
        settings=QUICK,
    )


def test_scores_stand_beside_the_published_ones_and_a_failed_row_is_named(
    done: Outcome, place: Path
) -> None:
    cells = {cell.line: cell for cell in done.cells}
    assert cells["a"].published == 80.0 and cells["a"].score is not None
    assert cells["b"].score is not None and cells["too wide"].score is None
    assert "heads" in cells["too wide"].problem
    assert done.tasks == ("one",)  # the data of the other is not there
    assert done.findings[0].verdict in ("confirmed", "undecided", "not confirmed")
    written = json.loads((place / "out" / "study.json").read_text(encoding="utf-8"))
    assert written["cells"][0]["score"] == cells["a"].score
    assert "A small study" in (place / "out" / "study.html").read_text(encoding="utf-8")
    assert "| a |" in (place / "out" / "study.md").read_text(encoding="utf-8")


def test_runs_that_differ_in_stage_2_share_stage_1(done: Outcome, place: Path) -> None:
    weights = [
        place / "out" / "runs" / "one" / name / "stage1" / "model.safetensors" for name in "ab"
    ]
    assert weights[0].samefile(weights[1])
    tuned = [path.parents[1] / "stage2" / "seed-1" / "best.safetensors" for path in weights]
    assert not tuned[0].samefile(tuned[1])


def test_runs_at_the_same_time_share_the_cores(done: Outcome, place: Path) -> None:
    recipe = load(place / "out" / "runs" / "one" / "a.recipe.toml")
    assert recipe.hardware.threads == max(1, usable_cores() // 2)


def test_the_same_study_trains_nothing_again_but_what_failed(
    done: Outcome, place: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []
    start = running._start

    def noted(job: running.Job, at_once: int, tracker: Tracker) -> running._Running:
        began.append(job.line.name)
        return start(job, at_once, tracker)

    monkeypatch.setattr(running, "_start", noted)
    again = run(place)
    assert began == ["too wide"]
    assert [cell.score for cell in again.cells] == [cell.score for cell in done.cells]


def test_several_studies_do_equal_runs_once(
    done: Outcome, place: Path, tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = STUDY.replace("A small study", "Another").replace('name = "b"', 'name = "c"')
    other = other.split("[[claims]]")[0].replace('finetune.epochs" = 2', 'finetune.epochs" = 3')
    (tmp_path / "other.toml").write_text(other, encoding="utf-8")
    began: list[str] = []
    start = running._start

    def noted(job: running.Job, at_once: int, tracker: Tracker) -> running._Running:
        began.append(f"{job.study} {job.line.name}")
        return start(job, at_once, tracker)

    monkeypatch.setattr(running, "_start", noted)
    loaded = load_studies([str(place / "small.toml"), str(tmp_path / "other.toml")])
    order = Order(
        place / "tasks",
        (str(place / "corpus.jsonl"),),
        tmp_path / "out",
        overrides=dict(QUICK),
        at_once=4,
    )
    small, second = (tmp_path / "out" / name for name in ("small", "other"))
    outcomes = flow.run(loaded, order, SILENT)
    assert list(outcomes) == [small, second]
    failed = {"small too wide", "other too wide"}
    assert {*began} - failed == {"small a", "small b", "other c"}
    scores = [{cell.line: cell.score for cell in one.cells} for one in outcomes.values()]
    assert scores[0]["a"] == scores[1]["a"] == done.cells[0].score
    assert all((folder / "study.html").exists() for folder in (small, second))
    weights = [
        folder / "runs" / "one" / name / "stage1" / "model.safetensors"
        for folder, name in ((small, "a"), (second, "c"))
    ]
    assert weights[0].samefile(weights[1])
    began.clear()
    flow.run(loaded, order, SILENT)
    assert {*began} <= failed


def test_studies_called_alike_or_without_a_task_are_refused(place: Path, tmp_path: Path) -> None:
    twin = tmp_path / "small.toml"
    twin.write_text(STUDY, encoding="utf-8")
    with pytest.raises(RecipeError, match="two studies are called small: rename a file"):
        load_studies([str(place / "small.toml"), str(twin)])
    other = tmp_path / "other.toml"
    other.write_text(STUDY.replace('"two"', '"three"'), encoding="utf-8")
    loaded = load_studies([str(place / "small.toml"), str(other)])
    order = Order(place / "tasks", (), tmp_path, tasks=("three",))
    assert order.of(loaded[1], loaded).tasks == ("three",)
    with pytest.raises(RecipeError, match="none of them is a task of small; it has one, two"):
        order.of(loaded[0], loaded)
    strangers = Order(place / "tasks", (), tmp_path, tasks=("one", "five"))
    assert strangers.of(loaded[0], loaded).tasks == ("one", "five")  # refused where runs are made


def test_other_keys_make_a_run_not_done(done: Outcome, place: Path) -> None:
    def jobs(**keys: object) -> list[bool]:
        order = Order(
            place / "tasks",
            (str(place / "corpus.jsonl"),),
            place / "out",
            overrides={**QUICK, **keys},
        )
        loaded = load_study(str(place / "small.toml"))
        return [is_done(job) for job in jobs_of(loaded, order)]

    assert jobs() == [True, True, False]
    assert jobs(**{"hardware.threads": 2}) == [True, True, False]  # changes no result
    assert jobs(**{"train.steps": 5}) == [False, False, False]


def test_the_verb_shows_the_table_and_what_agrees(done: Outcome, place: Path, here: None) -> None:
    words = [
        *("study", str(place / "small.toml"), "--data", str(place / "tasks")),
        *("--corpus", str(place / "corpus.jsonl"), "--out", str(place / "out"), "--tasks", "one"),
    ]
    keys = [word for key, value in QUICK.items() for word in (f"--{key}", str(value))]
    shown = CliRunner().invoke(app, [*words, *keys])
    assert shown.exit_code == 0, shown.output
    assert "More epochs are better: " in shown.output and "study.html" in shown.output
    dry = CliRunner().invoke(app, [*words, *keys, "--dry-run"])
    assert "is not a multiple of model.heads = 5" in str(dry.exception)  # before anything is paid
    listed = CliRunner().invoke(app, ["study"])
    assert "tlm-table-4" in listed.output


def test_without_data_or_any_score_it_is_an_error(place: Path, tmp_path: Path, here: None) -> None:
    missing = CliRunner().invoke(app, ["study", "tlm-table-4"])
    assert missing.exit_code and "--data is missing" in str(missing.exception)
    with pytest.raises(RunError) as caught:
        tasklm.study(
            place / "small.toml",
            data=place / "tasks",
            corpus=place / "corpus.jsonl",
            out=tmp_path / "out",
            settings={**QUICK, "model.heads": 5},
        )
    assert str(caught.value).startswith("no run has a score. small, one, a: ")
    assert "model.width = 32 is not a multiple of model.heads = 5" in str(caught.value)


def test_an_interrupt_ends_the_runs_and_they_are_continued(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*words: Any, **keys: Any) -> subprocess.Popen[bytes]:
        begun.append(start(*words, **keys))
        return begun[-1]

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    order = Order(
        place / "tasks", (str(place / "corpus.jsonl"),), tmp_path / "out", overrides=dict(QUICK)
    )
    jobs = jobs_of(study(tasks=["one"], rows=[{"name": "a"}], claims=[]), order)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(running.subprocess, "Popen", noted)
        patch.setattr(running.time, "sleep", interrupted)
        run_all(jobs, 1, SILENT)
    assert [process.poll() is None for process in begun] == [False]  # it has ended
    assert not is_done(jobs[0])
    monkeypatch.setattr(running.subprocess, "Popen", Here)
    assert run_all(jobs, 1, SILENT) == {} and is_done(jobs[0])
