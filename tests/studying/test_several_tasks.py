"""Studies whose rows learn several tasks together, begin with other rows, or are taught by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import RecipeError
from tasklm.recipe.toml import load
from tasklm.run_folder import SCORES
from tasklm.storage.files import read_json, write_json
from tasklm.studying import flow, running
from tasklm.studying.jobs import Job, jobs_of, own_part
from tasklm.studying.order import Order
from tasklm.studying.results import Outcome
from tasklm.studying.running import is_done, key_of, run_all
from tasklm.studying.study import Study
from tasklm.tracking import SILENT
from tests.studying.small import QUICK, Here, classes, corpus, study, write_task

ROWS: list[dict[str, Any]] = [
    {
        "name": "text",
        "together": "all",
        "until": "train",
        "recipe": {"train.rho1": 100000, "train.rho2": 1e5},
    },
    {"name": "single", "start": "text"},
    {
        "name": "taught",
        "together": "all",
        "start": "text",
        "teachers": "single",
        "published": {"one": 70.0, "average": 75.0},
    },
    {"name": "tuned", "start": "taught", "recipe": {"finetune.learning_rate": 1e-5}},
]
CLAIM = {"text": "All together are better", "better": "taught", "than": "single"}


def several(**changes: Any) -> Study:
    """Rows that need one another, on two tasks."""
    together = {"finetune.epochs": 3, "finetune.batch": 16}
    values: dict[str, Any] = {"rows": ROWS, "claims": [CLAIM], "together": together}
    return study(**{**values, **changes})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for name in ("one", "two"):
        write_task(folder / "tasks" / name, classes())
    corpus(folder)
    return folder


def order_in(place: Path, **changes: Any) -> Order:
    keys = {**QUICK, "finetune.epochs": 1, "finetune.seeds": 1, "data.leaks": "keep"}
    order = Order(
        place / "tasks", (str(place / "corpus.jsonl"),), place / "out", overrides=keys, at_once=2
    )
    return replace(order, **changes)


@pytest.fixture(scope="module")
def done(place: Path) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.subprocess, "Popen", Here)
        (outcome,) = flow.run([several()], order_in(place), SILENT).values()
    return outcome


def test_a_model_of_all_tasks_has_a_score_in_each_column(done: Outcome, place: Path) -> None:
    cells = {(cell.task, cell.line): cell for cell in done.cells}
    assert [line.name for line in done.study.lines_shown] == ["single", "taught", "tuned"]
    assert set(cells) == {
        (task, line) for task in ("one", "two") for line in ("single", "taught", "tuned")
    }
    assert all(cell.score is not None for cell in cells.values()), done.cells
    ours = next(
        row
        for row in read_json(place / "out" / "runs" / "together" / "taught" / SCORES)["rows"]
        if row["kind"] == "ours"
    )
    of_tasks = {one["name"]: 100 * one["test"]["mean"] for one in ours["tasks"]}
    assert {task: cells[task, "taught"].score for task in of_tasks} == pytest.approx(of_tasks)
    assert (cells["one", "taught"].published, cells["one", "taught"].metric) == (70.0, "macro_f1")
    alone = [cells[task, line].ours for task in ("one", "two") for line in ("single", "tuned")]
    flops = [row.flops_exact for row in alone if row is not None]
    assert done.flops == pytest.approx(sum(flops) + ours["flops_exact"])  # not once for each task
    (finding,) = done.findings
    assert list(finding.tasks) == ["one", "two"] and finding.verdict != "not measured"
    scores = [cells["one", line].score or 0.0 for line in ("taught", "single")]
    assert 100 * finding.tasks["one"].difference == pytest.approx(scores[0] - scores[1])


def test_runs_begin_with_others_and_are_taught_by_them(done: Outcome, place: Path) -> None:
    runs = place / "out" / "runs"
    text = runs / "together" / "text"
    assert not (text / SCORES).exists() and (text / "stage1" / "summary.json").exists()
    taught = load(runs / "together" / "taught" / "recipe.toml")
    assert taught.train.start == str(text / "stage1") and taught.train.steps == 0
    assert [Path(name) for name in taught.distill.teachers] == [
        runs / task / "single" for task in ("one", "two")
    ]
    assert (taught.finetune.epochs, taught.finetune.batch) == (1, 16)  # the command line, together
    single = load(runs / "one" / "single" / "recipe.toml")
    assert single.train.start == str(text / "stage1") and not single.distill.teachers
    tuned = load(runs / "two" / "tuned" / "recipe.toml")
    assert tuned.train.start == str(runs / "together" / "taught" / "model")
    assert tuned.finetune.learning_rate == 1e-5


def test_nothing_is_done_again_but_what_needs_something_new(done: Outcome, place: Path) -> None:
    jobs = {(job.line.name, job.task): job for job in jobs_of(several(), order_in(place))}
    assert all(is_done(job) for job in jobs.values())
    rows = [dict(row) for row in ROWS]
    rows[1]["recipe"] = {"finetune.dropout": 0.2}
    changed = {
        (job.line.name, job.task): is_done(job)
        for job in jobs_of(several(rows=rows), order_in(place))
    }
    assert {place[0]: here for place, here in changed.items()} == {
        "text": True,
        "single": False,  # its own key
        "taught": False,  # its teachers
        "tuned": False,  # where it begins
    }


def test_keys_do_not_depend_on_the_folder(done: Outcome, place: Path, tmp_path: Path) -> None:
    """Two studies of an order have folders of their own, and do equal runs once."""
    here = [key_of(job) for job in jobs_of(several(), order_in(place))]
    there = [key_of(job) for job in jobs_of(several(), order_in(place, out=tmp_path / "out"))]
    assert here == there and len(set(here)) == len(here)


def test_runs_wait_for_those_that_they_need_and_fail_with_them(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    class Failing:
        stdin, returncode = None, running.FAILED

        def __init__(self, command: list[str], *, stdout: Any, **_: Any) -> None:
            began.append(Path(command[4]).name)
            if began[-1] == "text":  # finished as if it had been trained
                self.returncode = 0
                summary = Path(command[4]) / "stage1" / "summary.json"
                summary.parent.mkdir(parents=True)
                write_json(summary, {})
            else:
                stdout.write(b"no memory")

        def poll(self) -> int:
            return self.returncode

    monkeypatch.setattr(running.subprocess, "Popen", Failing)
    jobs = jobs_of(several(), order_in(place, out=tmp_path / "out"))
    problems = run_all(jobs, 3, SILENT)
    assert began == ["text", "single", "single"]  # stage 1 first, and nothing that cannot be
    assert problems == {
        "small, one, single": "no memory",
        "small, two, single": "no memory",
        "small, 2 tasks, taught": "it needs one, single, which failed",
        "small, one, tuned": "it needs 2 tasks, taught, which failed",
        "small, two, tuned": "it needs 2 tasks, taught, which failed",
    }


def test_what_needs_one_another_is_done_by_one_machine(place: Path) -> None:
    alone = {"name": "alone"}
    jobs = jobs_of(several(rows=[*ROWS, alone]), order_in(place))
    own = [own_part(jobs, (number, 3)) for number in (1, 2, 3)]
    named = [{f"{job.task} {job.line.name}" for job in part} for part in own]
    assert sorted(map(len, named)) == [1, 1, 6]
    assert {"one alone"} in named and {"two alone"} in named


def columns(jobs: list[Job]) -> Mapping[str, list[tuple[str, tuple[str, ...]]]]:
    rows: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for job in jobs:
        rows.setdefault(job.line.name, []).append((job.task, job.tasks))
    return rows


def test_companions_and_all_other_tasks(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        write_task(tmp_path / name, classes())
    rows: list[dict[str, Any]] = [
        {"name": "single", "recipe": {"train.rho1": 0}},
        {"name": "pair", "together": ["two", "one"], "teachers": "single"},
        {"name": "of others", "together": "others", "until": "evaluate"},
        {"name": "on top", "start": "of others"},
    ]
    given = study(tasks=["one"], companions=["two", "three"], rows=rows, claims=[])
    order = Order(tmp_path, (str(corpus(tmp_path)),), tmp_path / "out")
    jobs = jobs_of(given, order)
    assert columns(jobs) == {
        "single": [(name, (name,)) for name in ("one", "two", "three")],  # they teach
        "pair": [("2 tasks", ("one", "two"))],
        "of others": [("one", ("three", "two"))],
        "on top": [("one", ("one",))],
    }
    top = next(job for job in jobs if job.line.name == "on top")
    assert top.recipe.train.start.endswith("runs/one/of-others/model")
    # without the data of a task, what names it is not run, nor what needs that
    fewer = columns(jobs_of(given, replace(order, tasks=("one", "three"))))
    assert set(fewer) == {"single"}


def test_the_members_of_a_run_are_read_as_their_tasks(tmp_path: Path) -> None:
    for name in ("cola", "sst2"):
        write_task(tmp_path / name, classes())
    rows = [{"name": "both", "together": "all", "recipe": {"train.rho1": 0}}]
    own = {"sst2": {"data.dev_share": 0.3, "train.rho2": 7.0}}
    given = study(tasks=["cola", "sst2"], rows=rows, claims=[], own=own)
    (job,) = jobs_of(given, Order(tmp_path, (), tmp_path / "out"))
    assert job.members["cola"].evaluate.metric == "matthews"
    assert job.members["sst2"].data.dev_share == 0.3
    assert job.members["sst2"].data.train == str(tmp_path / "sst2")
    assert job.recipe.train.rho2 != 7.0  # of the whole: that of all tasks
    assert job.recipe.several.tasks == tuple(
        f"{name}={tmp_path}/out/runs/together/both.tasks/{name}.toml" for name in ("cola", "sst2")
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"together": ["one", "five"]}, "row 'b': five is not among the tasks"),
        ({"together": ["one"]}, "row 'b': together names one task; for one, leave it out"),
        ({"teachers": "z"}, "row 'b': no row 'z' above it is run"),
        ({"start": "b"}, "row 'b': no row 'b' above it is run"),
        ({"until": "select"}, "row 'b': until = 'select': choose from train, evaluate"),
        ({"together": "all", "start": "a"}, "it has several tasks, but 'a' has a model of each"),
        ({"together": "others"}, "of others, no task has a score; give until = 'evaluate'"),
        ({"teachers": "step"}, "row 'b': 'step' is a step, which cannot teach"),
    ],
)
def test_what_is_wrong_with_a_row_of_several_tasks(row: dict[str, Any], problem: str) -> None:
    step = {"name": "step", "together": "all", "until": "train"}
    with pytest.raises(RecipeError) as caught:
        study(rows=[{"name": "a"}, step, {"name": "b", **row}], claims=[])
    assert problem in str(caught.value)
    claim = {"text": "t", "better": "a", "than": "step"}
    with pytest.raises(RecipeError, match="no row 'step' is run"):
        study(rows=[{"name": "a"}, step], claims=[claim])


def test_keys_of_several_tasks_at_a_scale(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_task(tmp_path / name, classes())
    rows = [{"name": name, "together": "all", "recipe": {"train.rho1": 0}} for name in "a"]
    given = study(
        rows=[*rows, {"name": "b", "recipe": {"train.rho1": 0}}],
        claims=[],
        recipe={"finetune.epochs": 3},
        together={"finetune.epochs": 6, "finetune.batch": 128},
        scales={"minutes": {"together": {"finetune.epochs": 12}, "finetune.batch": 64}},
    )

    def epochs(scale: str) -> dict[str, tuple[int | None, int | None]]:
        jobs = jobs_of(given, Order(tmp_path, (), tmp_path / "out", scale=scale))
        tuning = {job.line.name: job.recipe.finetune for job in jobs}
        return {name: (one.epochs, one.batch) for name, one in tuning.items()}

    assert epochs("minutes") == {"a": (12, 128), "b": (3, 64)}
    assert epochs("small") == {"a": (6, 128), "b": (3, 32)}
