"""Minutes that run out: what a run does without, that it says so, and that it decides only once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasklm.budget.scope import LINEAR, TASK, TEXT
from tasklm.console.clock import Clock
from tasklm.errors import RecipeError
from tasklm.pipeline import reading
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT
from tests.end_to_end.conftest import options

LATE = 50.0  # seconds of a minute, after which no network is trained


class SetClock(Clock):
    """A clock that shows what a test sets."""

    def __init__(self, spent: float = 0.0) -> None:
        super().__init__()
        self.spent = spent

    def seconds(self) -> float:
        return self.spent

    def restart(self) -> None:
        self.spent = 0.0

    def slowness(self) -> float:
        return 1.0


def recipe_of(files: Path, **changes: str) -> Recipe:
    """A run of a minute whose steps and epochs the budget decides."""
    given = options(files, budget__minutes="1", finetune__wide="true", **changes)
    decided = ("train.steps", "finetune.epochs", "finetune.seeds")
    return load(None, {key: value for key, value in given.items() if key not in decided})


def decided(run: Path, name: str) -> Any:
    return json.loads((run / name / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def late(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that had spent nearly all of its minute when the linear model was fitted."""
    folder = tmp_path_factory.mktemp("late") / "run"
    scores = fit(recipe_of(files), folder, SILENT, clock=SetClock(LATE))
    assert scores is not None and scores.linear
    assert scores.verdict.startswith(
        "The model is the linear model of words alone: no network was trained."
    )
    return folder


def test_a_run_without_time_ships_the_linear_model_and_says_so(late: Path) -> None:
    assert decided(late, "scope")["reach"] == LINEAR
    assert not (late / "decontaminated").exists() and not (late / "selected").exists()
    assert not list((late.parent / ".cache").glob("corpus-*"))
    plan = json.loads((late / "stage1/plan.json").read_text())
    assert (plan["stage1"]["steps"], plan["epochs"]) == (0, 0)
    about = json.loads((late / "model/config.json").read_text())["about"]
    assert about["linear"] and about["test"]["mean"] > 0
    assert Predictor(late / "model").answers(["the cat likes music"])
    said = "no network is trained: 50 s of 1 min are spent; to train one, give --minutes 2"
    assert (late / "log.txt").read_text().count(f"warning: {said}") == 1
    report = (late / "report.html").read_text()
    assert said in report and "no network was trained" in report
    assert "Attention heads" not in report  # of a network that nothing is read of


def test_the_same_command_again_ends_in_the_same_result(files: Path, late: Path) -> None:
    parts = [path for path in late.rglob("artefact.json") if path.parent.name != "insights"]
    before = {path: path.read_bytes() for path in parts}
    fit(recipe_of(files), late, SILENT, clock=SetClock(0.0))
    assert {path: path.read_bytes() for path in parts} == before


def test_a_run_that_is_stopped_after_its_decision_keeps_it(
    files: Path, late: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "run"
    assert fit(recipe_of(files), cut, SILENT, until="check", clock=SetClock(LATE)) is None
    scores = fit(recipe_of(files), cut, SILENT, clock=SetClock(0.0))
    assert scores is not None and scores.linear
    for name in ("scope/scope.json", "predictions/dev-1.json", "predictions/test-1.json"):
        assert (cut / name).read_bytes() == (late / name).read_bytes()


def test_text_that_is_selected_is_used(files: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(recipe_of(files), run, SILENT, until="select", clock=SetClock(1.0))
    assert decided(run, "scope")["reach"] == decided(run, "plan")["reach"] == TEXT
    for name in ("scope", "plan"):  # damage: both are decided again, when it is late
        (run / name / f"{name}.json").write_text("{")
    fit(recipe_of(files), run, SILENT, until="select", clock=SetClock(LATE))
    assert decided(run, "scope")["reach"] == decided(run, "plan")["reach"] == TEXT


@pytest.mark.parametrize(("wide", "reach"), [("true", LINEAR), ("false", TASK)])
def test_when_reading_took_long_no_text_is_selected(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: str, reach: str
) -> None:
    run, clock, prepare = tmp_path / "run", SetClock(1.0), reading.prepare_corpus

    def slow(*given: Any) -> Any:
        clock.spent = LATE
        return prepare(*given)

    monkeypatch.setattr(reading, "prepare_corpus", slow)
    recipe = recipe_of(files).changed(finetune={"wide": wide == "true"})
    fit(recipe, run, SILENT, until="select", clock=clock)
    assert decided(run, "scope")["reach"] == TEXT and (run / "decontaminated").exists()
    assert decided(run, "plan")["reach"] == reach and not (run / "selected").exists()
    (reason,) = [one for one in decided(run, "plan")["reasons"] if "--minutes" in one]
    assert f"warning: {reason}" in (run / "log.txt").read_text()
    fit(recipe, run, SILENT, until="select", clock=SetClock(0.0))
    assert decided(run, "plan")["reach"] == reach and not (run / "selected").exists()


def test_ablations_of_no_network_are_left_out_with_a_word(late: Path, files: Path) -> None:
    recipe = recipe_of(files).changed(evaluate={"compare": ["task-only"]})
    scores = fit(recipe, late, SILENT, clock=SetClock(0.0))
    assert scores is not None and {row.kind for row in scores.rows} == {"baseline", "ours"}
    assert "warning: no ablations" in (late / "log.txt").read_text()


def test_no_epochs_leave_the_linear_model_where_there_is_one(files: Path, tmp_path: Path) -> None:
    fixed = recipe_of(files).changed(
        budget={"minutes": None}, train={"steps": 0}, finetune={"epochs": 0, "seeds": 1}
    )
    scores = fit(fixed, tmp_path / "run", SILENT)
    assert scores is not None and scores.linear
    with pytest.raises(RecipeError, match=r"finetune\.epochs = 0 leaves the linear model"):
        fit(fixed.changed(finetune={"wide": False}), tmp_path / "other", SILENT)
