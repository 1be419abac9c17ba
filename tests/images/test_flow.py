"""The flow of images: it learns, goes on after any interruption, and hands back a model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tasklm.images.stage as stage_module
from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import RecipeError, RunError, TaskLMError
from tasklm.images.exporting import export_images
from tasklm.images.flow import check, fit
from tasklm.images.model import ImagePredictor
from tasklm.models.weights import load_weights
from tasklm.run_folder import Seed
from tasklm.serve.predictor import Predictor
from tasklm.tracking import Tracker
from tests.images.samples import arrays, png, small_recipe, write_archive, write_folder
from tests.serve.models import need_onnx

BOTH: dict[str, dict[str, Any]] = {
    "finetune": {"unlabelled": "cross-view,vat"},
    "data": {"share": 0.5},
    "image": {"noise_norm": 2.0, "shifts": 2, "flips": True},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all that there is."""
    folder = tmp_path_factory.mktemp("images")
    archive = write_archive(folder / "shapes.npz")
    recipe = small_recipe(archive, **BOTH, evaluate={"baselines": True, "compare": ["supervised"]})
    recipe = recipe.changed(finetune={"seeds": 2})
    scores = fit(recipe, folder / "run", Tracker())
    assert scores is not None and scores.ours is not None and scores.ours.test is not None
    return folder / "run"


def test_coloured_shapes_are_learnt_on_a_cpu_in_seconds(tmp_path: Path) -> None:
    recipe = small_recipe(
        write_archive(tmp_path / "shapes.npz", 90, 60), image={"width": 8, "steps": 60}
    )
    scores = fit(recipe, tmp_path / "run", Tracker(), until="evaluate")
    assert scores is not None and scores.ours is not None and scores.ours.test is not None
    assert scores.ours.test.mean > 0.9
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_has_scores_rows_and_a_report(run: Path) -> None:
    scores = json.loads((run / "scores.json").read_text())
    kinds = [row["kind"] for row in scores["rows"]]
    assert kinds == ["baseline", "baseline", "ablation", "ours"]
    assert len(scores["rows"][-1]["test"]["values"]) == 2
    assert "stage" not in json.dumps(scores["verdict"]) and scores["metric"] == "accuracy"
    assert "stage" not in scores["rows"][-1]["resampled"]
    page = (run / "report.html").read_text()
    assert "data:image/png;base64" in page and "What the cells see" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_repeated_command_does_nothing_again(run: Path) -> None:
    from tasklm.recipe.toml import load

    before = {file: file.stat().st_mtime_ns for file in run.rglob("*.safetensors")}
    fit(load(run / "recipe.toml"), run, Tracker())
    assert before == {file: file.stat().st_mtime_ns for file in run.rglob("*.safetensors")}


class Stopped(Exception):
    """Stands for a kill."""


def test_a_training_killed_at_any_moment_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "shapes.npz")
    averaged = {"unlabelled": "cross-view,vat", "average": 0.9}
    recipe = small_recipe(archive, **{**BOTH, "finetune": averaged})
    recipe = recipe.changed(train={"checkpoint_seconds": 0.0}, image={"steps": 12})
    fit(recipe, tmp_path / "whole", Tracker(), until="finetune")
    compute = stage_module.ImageStage._compute
    steps, kills = 0, np.random.default_rng(4).integers(0, 4, 4).tolist()

    def failing(self: Any, batch: Any) -> Any:
        nonlocal steps
        steps += 1
        if kills and steps == kills[-1] + 1:
            kills.pop()
            steps = 0
            raise Stopped
        return compute(self, batch)

    monkeypatch.setattr(stage_module.ImageStage, "_compute", failing)
    stops = 0
    while True:
        try:
            fit(recipe, tmp_path / "killed", Tracker(), until="finetune")
            break
        except Stopped:
            stops += 1
    assert stops == 4
    one, other = (load_weights(Seed(tmp_path / name, 1, 1).weights) for name in ("whole", "killed"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_model_answers_files_bytes_and_arrays_alike(run: Path, tmp_path: Path) -> None:
    pixels, _ = arrays(3, 5)
    (tmp_path / "one.png").write_bytes(png(pixels[0]))
    predictor = ImagePredictor(run / "model")
    answers = predictor.answers([tmp_path / "one.png", png(pixels[0]), pixels[0]])
    assert answers[0] == answers[1] == answers[2]
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1.0)
    answer, own, evidence = predictor.evidence(pixels[0])
    assert np.array_equal(own, pixels[0]) and evidence.shape == (2, 2)
    assert answer["label"] == answers[0]["label"]


def test_python_has_the_same_estimator(run: Path, tmp_path: Path) -> None:
    model = TaskLM.load(run)
    pixels, labels = arrays(6, 5)
    assert model.predict(list(pixels)).shape == (6,)
    assert model.predict_proba(list(pixels)).shape == (6, 3)
    assert 0 <= model.score(list(pixels), labels.tolist()) <= 1
    assert model.answers([pixels[0]])[0]["label"] in model.classes_
    model.save(tmp_path / "copy")
    again = TaskLM.load(tmp_path / "copy")
    assert np.array_equal(again.predict_proba(list(pixels)), model.predict_proba(list(pixels)))
    for refused in (
        lambda: model.predict_sets([pixels[0]]),
        lambda: model.explain(pixels[0]),
        lambda: model.label_next(["x"]),
        lambda: model.predict([pixels[0]], task="x"),
        model.bill,
    ):
        with pytest.raises(TaskLMError):
            refused()


def test_python_fits_a_folder(tmp_path: Path) -> None:
    settings = {
        "image.width": 4,
        "image.steps": 3,
        "hardware.threads": 1,
        "evaluate.bootstrap": 100,
    }
    model = TaskLM(settings=settings).fit(write_folder(tmp_path / "shapes", 6))
    assert model.classes_.tolist() == ["blue", "green", "red"]


def test_an_exported_graph_answers_like_pytorch(run: Path, tmp_path: Path) -> None:
    need_onnx()
    exported, folder = export_images(run, "onnx", tmp_path / "graph")
    assert exported.max_difference < 1e-3
    pixels, _ = arrays(5, 8)
    ours, theirs = (ImagePredictor(one).outputs(list(pixels)) for one in (run / "model", folder))
    np.testing.assert_allclose(theirs.logits, ours.logits, atol=1e-4)
    np.testing.assert_allclose(theirs.cells, ours.cells, atol=1e-4)
    with pytest.raises(RecipeError, match="--to onnx"):
        export_images(run, "hf", tmp_path / "other")


def test_a_damaged_model_is_named(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(run / "model", copy)
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        ImagePredictor(copy)


def test_the_text_flow_and_predictor_refuse_images(run: Path) -> None:
    from tasklm.pipeline.flow import fit as fit_text

    with pytest.raises(RecipeError, match="these are images"):
        fit_text(small_recipe(run.parent / "shapes.npz"), run.parent / "text", Tracker())
    with pytest.raises(RunError, match="model of images"):
        Predictor(run / "model")


def test_minutes_decide_the_steps_once(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "shapes.npz")
    recipe = small_recipe(archive).changed(image={"steps": None}, budget={"minutes": 0.1})
    fit(recipe, tmp_path / "run", Tracker(), until="finetune")
    plan = json.loads((tmp_path / "run" / "plan" / "plan.json").read_text())
    assert plan["steps"] >= 1 and 0 < plan["seconds"] <= 6


def test_the_audit_has_no_error(run: Path, tmp_path: Path) -> None:
    findings = check(small_recipe(run.parent / "shapes.npz"), tmp_path / "check", Tracker())
    assert {finding.level for finding in findings} == {"ok"}


REFUSED = [
    ("select", "RUN"),
    ("tokenize", "RUN"),
    ("train", "RUN"),
    ("select", "RUN", "--explain", "x"),
    ("search", "RUN", "x"),
    ("bill", "RUN"),
    ("label-next", "RUN", "--from", "DATA"),
    ("distill", "RUN", "--out", "OUT"),
    ("update", "RUN", "--train", "DATA"),
    ("score", "RUN", "DATA"),
    ("rerank", "RUN", "LISTS"),
    ("forecast", "DATA"),
    ("compare", "DATA", "--out", "OUT"),
    ("check", "RUN", "--influence"),
    ("report", "RUN", "RUN"),
    ("explain", "RUN", "RUN"),
    ("export", "RUN", "--to", "hf", "--out", "OUT"),
    ("predict", "RUN", "-"),
    ("predict", "RUN", "--coverage", "0.9", "x.png"),
    ("fit", "DATA", "--corpus", "texts", "--out", "OUT"),
]


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words))
def test_verbs_for_text_refuse_with_the_reason(
    run: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "lists.jsonl").write_text('{"id": 1, "candidates": [{"text": "a", "score": 1}]}\n')
    places = {
        "RUN": run,
        "DATA": run.parent / "shapes.npz",
        "OUT": tmp_path / "out",
        "LISTS": tmp_path / "lists.jsonl",
    }
    result = CliRunner().invoke(app, [str(places.get(word, word)) for word in words])
    assert isinstance(result.exception, TaskLMError), result.output
    assert "image" in str(result.exception)


def test_verbs_work_on_images(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_folder(tmp_path / "new", 5)
    runner = CliRunner()
    one = str(sorted((folder / "red").iterdir())[0])
    rows = runner.invoke(app, ["predict", str(run), one, str(folder)]).stdout.splitlines()
    assert len(rows) == 16 and json.loads(rows[0])["file"] == one
    shown = runner.invoke(app, ["explain", str(run / "model"), one])
    assert shown.exit_code == 0 and list(tmp_path.glob("*-cells.png"))
    cells = json.loads(runner.invoke(app, ["explain", str(run), one, "--json"]).stdout)["cells"]
    assert np.shape(cells) == (2, 2)
    written = runner.invoke(app, ["init", str(folder), "--to", "own.toml"])
    assert written.exit_code == 0, written.output
    assert 'kind = "image"' in (tmp_path / "own.toml").read_text()
    assert runner.invoke(app, ["check", str(run), "--files"]).exit_code == 0
    assert runner.invoke(app, ["report", str(run)]).exit_code == 0


def test_settings_that_do_not_fit_are_refused(run: Path, tmp_path: Path) -> None:
    archive = run.parent / "shapes.npz"
    for changed, told in (
        ({"image": {"shifts": 20}}, "image.shifts = 20"),
        ({"evaluate": {"compare": ["random"]}}, "for images there is supervised"),
        ({"evaluate": {"compare": ["supervised"]}}, "the model is that already"),
        ({"finetune": {"unlabelled": "word-dropout"}}, "cross-view,vat or none"),
        ({"evaluate": {"metric": "bleu"}}, "bleu"),
    ):
        with pytest.raises(RecipeError, match=told):
            fit(small_recipe(archive, **changed), tmp_path / "run", Tracker())


def test_a_changed_recipe_trains_anew_and_another_seed_does_not(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "shapes.npz")
    recipe = small_recipe(archive)
    fit(recipe, tmp_path / "run", Tracker(), until="finetune")
    first = Seed(tmp_path / "run", 1, 1)
    key = first.key
    more = dataclasses.replace(recipe, finetune=dataclasses.replace(recipe.finetune, seeds=2))
    fit(more, tmp_path / "run", Tracker(), until="finetune")
    assert first.key == key and Seed(tmp_path / "run", 1, 2).weights.exists()
    fit(recipe.changed(image={"dropout": 0.3}), tmp_path / "run", Tracker(), until="finetune")
    assert first.key != key
