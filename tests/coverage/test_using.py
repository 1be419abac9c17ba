"""Sets of labels from a run: command line, Python, service and exports give the same ones."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.coverage.calibration import FILE, read_calibrations
from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import export
from tasklm.pipeline import flow
from tasklm.pipeline.file_check import check_files
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.serve.models import need_onnx
from tests.several_models import write_tasks

LINEAR = {
    **QUICK,
    "train.steps": "1",
    "finetune.epochs": "0",
    "finetune.seeds": "1",
    "finetune.wide": "true",
    "evaluate.bootstrap": "100",
    "data.leaks": "keep",
}
NETWORK = {
    **LINEAR,
    "finetune.epochs": "1",
    "finetune.seeds": "2",
    "finetune.wide": "false",
    "finetune.soup": "true",
    "evaluate.ensemble": "true",
    "evaluate.baselines": "false",
}
TEXTS = ["the cat likes music", "a dog sees cold water", "nichts davon ist bekannt", "?"]


def noisy(count: int, seed: int) -> list[dict[str, object]]:
    """Examples of which some have the wrong label."""
    draw = random.Random(seed)
    rows = labelled(count, seed)
    other = {"yes": "no", "no": "yes"}
    for row in rows:
        if draw.random() < 0.1:
            row["label"] = other[str(row["label"])]
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Train, dev and test."""
    folder = tmp_path_factory.mktemp("data")
    sizes = (("train", 160, 1), ("dev", 150, 2), ("test", 200, 3))
    return {
        f"data.{name}": str(write_jsonl(folder / f"{name}.jsonl", noisy(count, seed)))
        for name, count, seed in sizes
    }


@pytest.fixture(scope="module")
def run(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory, speed_is_not_measured: None
) -> Path:
    """A run whose model is the linear one alone."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    fit(load(None, {**files, **LINEAR}), folder, SILENT)
    return folder


def predicted(*words: str) -> list[dict[str, Any]]:
    """What `tasklm predict` prints."""
    result = CliRunner().invoke(app, ["predict", *words])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_command_line_and_python_give_the_same_sets(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    printed = predicted(str(run / "model"), str(path), "--coverage", "0.95")
    model = TaskLM.load(run)
    assert model.predict_sets(TEXTS, coverage=0.95) == printed
    assert [row["text"] for row in printed] == TEXTS
    assert "yes" in printed[0]["labels"] and "unlike" in printed[2]["unknown"]
    for row in printed[:2]:
        values = list(row["labels"].values())
        assert values == sorted(values, reverse=True)
    (alone,) = predicted(str(run / "model"), json.dumps({"text": TEXTS[0]}), "--coverage", "0.95")
    assert alone["labels"] == printed[0]["labels"]
    sizes = [
        sum(len(row.get("labels", {})) for row in model.predict_sets(TEXTS[:2], coverage=share))
        for share in (0.7, 0.95, 0.99)
    ]
    assert sizes == sorted(sizes)
    model.save(tmp_path / "copy")
    assert TaskLM.load(tmp_path / "copy").predict_sets(TEXTS) == printed


def test_what_is_promised_and_measured_stands_in_the_report(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Sets of labels: promised and measured coverage" in page
    assert "Calibrated on 150 dev examples" in page and "Dev also chose the model" in page
    values = json.loads((run / "coverage/model/measured.json").read_text(encoding="utf-8"))[""]
    assert [one["promised"] for one in values] == [0.9, 0.95, 0.99]
    test = [json.loads(line) for line in Path(_data(run, "test")).read_text().splitlines()]
    rows = TaskLM.load(run).predict_sets([row["text"] for row in test], coverage=0.9)
    right = sum(
        row["label"] in found.get("labels", {}) for row, found in zip(test, rows, strict=True)
    )
    assert values[0]["right"] == right and values[0]["count"] == 200
    assert f"{right / 200:.1%}" in page


def _data(run: Path, name: str) -> str:
    return str(getattr(load(run / "recipe.toml").data, name))


def test_a_linear_model_gives_sets_without_importing_pytorch(run: Path) -> None:
    code = "import sys; from tasklm.cli.app import main\ntry: main()\nfinally: print(*sys.modules)"
    words = ["predict", str(run / "model"), TEXTS[0], "--coverage", "0.9"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    row, modules = done.stdout.splitlines()
    assert "labels" in json.loads(row)
    assert "torch" not in modules.split() and "scipy.stats" not in modules.split()


def test_the_service_gives_the_same_sets(run: Path) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from tasklm.serve.service import create_app

    expected = TaskLM.load(run).predict_sets(TEXTS, coverage=0.95)
    with TestClient(create_app(Predictor(run / "model"))) as client:
        assert client.get("/task").json()["sets"] is True
        answers = client.post("/predict", json={"inputs": TEXTS, "coverage": 0.95}).json()
        assert [
            {"text": text, **row} for text, row in zip(TEXTS, answers["answers"], strict=True)
        ] == expected
        for wrong in (0, 1, 95, "0.9", None, True):
            refused = client.post("/predict", json={"inputs": TEXTS, "coverage": wrong})
            assert refused.status_code == 422 and "between 0 and 1" in refused.json()["detail"]
        refused = client.post("/predict", json={"inputs": TEXTS, "coverage": 0.9999})
        assert refused.status_code == 422 and "9,999 dev examples" in refused.json()["detail"]
        assert "label" in client.post("/predict", json={"inputs": TEXTS}).json()["answers"][0]


def test_exports_give_the_same_sets_or_say_that_they_give_none(run: Path, tmp_path: Path) -> None:
    need_onnx()
    expected = TaskLM.load(run).predict_sets(TEXTS, coverage=0.95)
    _, folder = export(run, "onnx", tmp_path / "onnx")
    printed = predicted(str(folder), TEXTS[0], "--coverage", "0.95")
    assert printed[0].keys() == expected[0].keys()
    for label, value in expected[0]["labels"].items():
        assert printed[0]["labels"][label] == pytest.approx(value, abs=1e-5)
    sets = Predictor(folder).sets(TEXTS, 0.95)
    assert [sorted(row.get("labels", {})) for row in sets] == [
        sorted(row.get("labels", {})) for row in expected
    ]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "## Sets of labels" in card and "| promised |" in card
    path = folder / FILE
    path.write_text(path.read_text(encoding="utf-8").replace("0.", "0.1", 1), encoding="utf-8")
    with pytest.raises(RunError, match=r"does not match|bytes, not"):
        Predictor(folder)
    _, folder = export(run, "hf", tmp_path / "hf")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / FILE).exists() and "transformers cannot answer with label sets" in card
    assert "the promise does not hold for its outputs alone" in card


def test_a_model_of_an_earlier_version_is_refused_and_fit_again_adds_what_is_missing(
    run: Path, files: dict[str, str], tmp_path: Path
) -> None:
    old = tmp_path / "first"
    shutil.copytree(run, old)
    before = (old / "model" / FILE).read_bytes()
    shutil.rmtree(old / "coverage")
    (old / "model" / FILE).unlink()
    made = (old / "model/artefact.json").read_bytes(), (old / "wide/artefact.json").read_bytes()
    result = CliRunner().invoke(app, ["predict", str(old / "model"), TEXTS[0], "--coverage", "0.9"])
    assert isinstance(result.exception, RunError)
    assert "not been calibrated" in str(result.exception)
    assert "fit again with the same data and the same --out" in str(result.exception)
    fit(load(None, {**files, **LINEAR}), old, SILENT)
    assert (old / "model" / FILE).read_bytes() == before
    assert made == (
        (old / "model/artefact.json").read_bytes(),
        (old / "wide/artefact.json").read_bytes(),
    )
    path = old / "model" / FILE
    path.write_bytes(before.replace(b"yes", b"yea", 1))
    with pytest.raises(RunError, match=r"checksum does not match.*tasklm evaluate"):
        TaskLM.load(old).predict_sets(TEXTS)
    assert any(FILE in one.file for one in check_files(old).damaged)


def test_the_models_that_ship_are_those_that_were_calibrated(
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    speed_is_not_measured: None,
) -> None:
    monkeypatch.setattr(flow, "is_better", lambda soup, own: True)
    fit(load(None, {**files, **NETWORK}), tmp_path / "run", SILENT)
    rows = [json.loads(line) for line in Path(files["data.dev"]).read_text().splitlines()]
    scores = []
    for name in ("model", "ensemble"):
        folder = tmp_path / "run" / name
        answers = Predictor(folder).answers([row["text"] for row in rows])
        seen = read_calibrations(folder)[""].seen
        for label in ("no", "yes"):
            own = [
                1 - answer["probabilities"][label]
                for row, answer in zip(rows, answers, strict=True)
                if row["label"] == label
            ]
            assert np.allclose(seen[label].strangeness, sorted(own), atol=1e-6)
        scores.append(np.concatenate([one.strangeness for one in seen.values()]))
        assert TaskLM.load(folder).predict_sets(TEXTS[:1])
    assert not np.allclose(*scores)
    config = json.loads((tmp_path / "run/model/config.json").read_text(encoding="utf-8"))
    assert config["about"]["averaged"] == [1, 2]


def test_each_of_several_tasks_has_sets_of_its_own(
    tmp_path: Path, speed_is_not_measured: None
) -> None:
    folders = write_tasks(tmp_path / "data", ("classify", "regress", "tag"))
    recipe = load(None, {**LINEAR, "evaluate.baselines": "false"})
    fit(recipe.changed(several={"tasks": folders}), tmp_path / "run", SILENT)
    model = TaskLM.load(tmp_path / "run")
    text = "the cat likes cold water"
    (classes,) = model.predict_sets([text], coverage=0.9, task="classify")
    assert classes.keys() & {"labels", "unknown"}
    (scores,) = model.predict_sets([text], coverage=0.9, task="regress")
    assert scores.keys() & {"interval", "unknown"}
    with pytest.raises(RecipeError, match="each word has an answer"):
        model.predict_sets([text], task="tag")
    with pytest.raises(RecipeError, match="name one of"):
        model.predict_sets([text])
    words = [str(tmp_path / "run/model"), text, "--coverage", "0.9", "--task", "all"]
    result = CliRunner().invoke(app, ["predict", *words])
    assert isinstance(result.exception, RecipeError) and "is for one task" in str(result.exception)
