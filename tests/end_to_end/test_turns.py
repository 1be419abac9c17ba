"""Tasks that take turns in one model: trained, scored, used, compared, cut off, and refused what
they cannot have.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tasklm.api.estimator import TaskLM
from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.evaluate.scores import from_dict
from tasklm.models.task_model import load_models
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.pipeline.linear_part import FittedPart, _line_of_turns
from tasklm.pipeline.teachers import student_of
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump, load
from tasklm.serve.explainer import Explainer
from tasklm.storage.files import read_json
from tasklm.tasks.several import turns_of
from tasklm.tracking import SILENT
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.forking import Commands
from tests.end_to_end.kind_data import ASKED
from tests.end_to_end.test_kill import kill_at
from tests.serve.models import need_onnx
from tests.turn_tasks import turn_recipe, turn_tasks

FAST = {**QUICK, "train.steps": "8", "finetune.epochs": "2", "finetune.seeds": "1"}
NAMES = ("classify", "tag", "choice", "span", "crf")
QUESTION = {"question": "which number ?", "context": ASKED}


def recipe_of(folder: Path, names: tuple[str, ...] = NAMES, **changes: object) -> Recipe:
    """A short training of tasks that take turns, with text."""
    texts = [{"text": " ".join(sentences(8, 100 + number))} for number in range(30)]
    folder.mkdir()
    corpus = str(write_jsonl(folder / "corpus.jsonl", texts))
    base = turn_recipe(folder / "data", names)
    path = folder / "recipe.toml"
    path.write_text(dump(base), encoding="utf-8")
    return load(path, {**FAST, "data.corpus": [corpus], **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, compared with a model for each task."""
    folder = tmp_path_factory.mktemp("turns")
    recipe = recipe_of(folder / "files", **{"evaluate.compare": ["single"]})
    assert fit(recipe, folder / "run", SILENT) is not None
    return folder / "run"


def test_every_task_is_scored_beside_its_own_model(run: Path) -> None:
    scores = from_dict(read_json(run / "scores.json"))
    assert {row.name for row in scores.rows} >= {
        "linear model of each task",
        "a model for each task",
        "BM25 selection (TLM), 5 tasks together",
    }
    for row in scores.rows:
        assert [one.name for one in row.tasks] == list(NAMES)
        parts = [one.dev.mean for one in row.tasks if one.dev is not None]
        assert row.dev is not None and row.dev.mean == pytest.approx(sum(parts) / len(NAMES))
    assert "Each task" in (run / "report.html").read_text(encoding="utf-8")
    summary = read_json(run / "compare" / "single" / "crf" / "stage1" / "summary.json")
    assert summary["steps"] == 8


def test_the_bill_has_the_tokens_of_every_turn(run: Path) -> None:
    bill = read_bill(run)
    assert {data.task for data in bill.labelled} == set(NAMES)
    shares = [part.share for _, part in bill.parts()]
    assert sum(shares) == pytest.approx(1)
    read = Counter[str]()
    for data in bill.labelled:
        read[data.task] += sum(part.tokens_read for part in data.parts)
    assert sum(read.values()) == bill.totals["tokens_read_of_examples"]
    assert bill.totals["tokens_read_of_text"] == np.load(run / "stage1" / "text-read.npy").sum()


def test_the_run_names_the_tasks_with_a_linear_part(tmp_path: Path) -> None:
    read = turn_tasks(tmp_path, ("classify", "choice", "crf"))
    train, dev = read.splits.train, read.splits.dev
    fitted = read.task.fit_wide(train, dev, "mean")
    assert fitted is not None
    line = _line_of_turns(read.task, FittedPart(fitted.wide, fitted.train))
    assert line == "of classify; choice, crf have none, as tasks with a head of their own"
    assert _line_of_turns(read.task, FittedPart()).startswith("no task has a linear part")


def test_the_saved_model_answers_for_each_task_and_for_all(run: Path) -> None:
    loaded = load_models(run / "model", torch.device("cpu"))
    names = [("classify", "tag"), ("choice",), ("span",), ("crf",)]
    assert [turn.names for turn in turns_of(loaded.task)] == names
    done = CliRunner().invoke(app, ["predict", str(run / "model"), ASKED, "--task", "all"])
    assert done.exit_code == 0, done.exception
    answers = json.loads(done.output)["tasks"]
    assert set(answers) == {"classify", "tag", "crf"}
    model = TaskLM.load(run)
    (crf,) = model.answers([ASKED], task="crf")
    assert crf["tags"] == answers["crf"]["tags"]
    (span,) = model.answers([QUESTION], task="span")
    (every,) = model.answers([QUESTION], task="all")
    assert every["tasks"]["span"]["answer"] == span["answer"]


def test_the_service_answers_for_each_and_explains_what_it_can(run: Path) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from tasklm.serve.columns import columns_for
    from tasklm.serve.predictor import Predictor
    from tasklm.serve.service import create_app

    predictor = Predictor(run / "model", data=columns_for(load(run / "recipe.toml")))
    with TestClient(create_app(predictor, Explainer(run))) as client:
        every = client.post("/predict/all", json={"inputs": [ASKED, QUESTION]}).json()["answers"]
        assert set(every[0]["tasks"]) == {"classify", "tag", "crf"}
        assert "span" in every[1]["tasks"]
        about = client.get("/task").json()["tasks"]
        assert about["choice"]["explains"] is False and about["crf"]["explains"] is True
        assert client.post("/explain/crf", json={"input": ASKED}).status_code == 200
        assert client.post("/explain/span", json={"input": QUESTION}).status_code == 200
        row = {"article": ASKED, "question": "what ?", "options": ["ball", "music", "road"]}
        assert client.post("/predict/choice", json={"inputs": [row]}).status_code == 200
        assert client.post("/explain/choice", json={"input": row}).status_code == 404


def test_what_is_not_possible_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    need_onnx()
    words = ["export", str(run), "--to", "onnx", "--out", str(tmp_path / "onnx")]
    done = CliRunner().invoke(app, words)
    assert "tasks that share a head, not choice, span, crf" in str(done.exception)
    for name in ("choice", "tag"):
        done = CliRunner().invoke(app, [*words[:-1], str(tmp_path / name), "--task", name])
        assert done.exit_code == 0, done.exception


def test_models_of_single_tasks_teach_one_that_takes_turns(tmp_path: Path) -> None:
    names = ("classify", "choice", "crf", "span", "parse")
    whole = recipe_of(tmp_path / "files", names)
    runs, scores = {}, {}
    for name in names:
        source = tmp_path / "files" / "data" / {"crf": "crf.toml"}.get(name, name)
        if name == "crf":
            own = load(source, FAST)
        else:
            own = load(None, {**FAST, "data.train": str(source), "data.leaks": "keep"})
        scores[name] = fit(own.changed(data={"leaks": "keep"}), tmp_path / name, SILENT)
        runs[name] = str(tmp_path / name)
    recipe = student_of(list(runs.values()), {"data.leaks": "keep"})
    taught = fit(recipe, tmp_path / "student", SILENT)
    assert taught is not None and whole.several.tasks
    row = next(one for one in taught.rows if one.kind == "teacher")
    for one in row.tasks:
        own = scores[one.name]
        assert own is not None and own.ours is not None and own.ours.dev is not None
        assert one.dev is not None and one.dev.mean == pytest.approx(own.ours.dev.mean, abs=0.1)
    losses = read_json(tmp_path / "student" / "stage2" / "seed-1" / "curve.json")
    assert all("teacher" in point for point in losses if "task" in point)
    again = fit(student_of([str(tmp_path / "student")], {}), tmp_path / "again", SILENT)
    assert again is not None
    teachers = next(one for one in again.rows if one.kind == "teacher")
    assert taught.ours is not None and taught.ours.dev is not None and teachers.dev is not None
    assert teachers.dev.mean == pytest.approx(taught.ours.dev.mean, abs=0.05)


def command(recipe: Path, out: Path) -> list[str]:
    return ["run", str(recipe), "--out", str(out), "--train.checkpoint_seconds", "0"]


def test_killed_in_both_stages_ends_in_identical_weights(
    commands: Commands, tmp_path: Path
) -> None:
    recipe = tmp_path / "whole.toml"
    recipe.write_text(dump(recipe_of(tmp_path / "files", ("classify", "choice", "crf"))), "utf-8")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    commands.run(command(recipe, whole))
    for point in ("stage1.partial/checkpoint-*", "stage2/seed-1.partial/checkpoint-*"):
        kill_at(commands, command(recipe, cut), cut, point, 0.0)
    commands.run(command(recipe, cut))
    one = load_weights(whole / "stage2" / "seed-1" / "best.safetensors")
    two = load_weights(cut / "stage2" / "seed-1" / "best.safetensors")
    assert all(torch.equal(one[name], two[name]) for name in one)
    shared = tmp_path / "shared"
    commands.run(command(recipe, shared), processes=2)  # each takes its rows of every batch
    three = load_weights(shared / "stage2" / "seed-1" / "best.safetensors")
    assert one.keys() == three.keys()
    steps = [read_json(folder / "stage1" / "summary.json")["steps"] for folder in (whole, shared)]
    assert steps == [8, 8]
