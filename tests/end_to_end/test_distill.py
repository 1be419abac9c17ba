"""Finished runs teach another: what they say is kept once, the score table has them, and what does
not fit is refused in words.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tasklm import TaskLM, distill
from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.errors import RecipeError
from tasklm.evaluate.scores import Scores
from tasklm.models.task_model import load_models
from tasklm.pipeline.flow import fit
from tasklm.pipeline.teachers import student_of, teachers_of
from tasklm.recipe.toml import load
from tasklm.run_folder import recipe_of
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.several_models import write_tasks

FAST = {**QUICK, "train.steps": "10", "finetune.epochs": "2", "evaluate.baselines": "false"}
SMALLER = {"model.width": 16, "model.heads": 1, "tokens.vocabulary": 300}


def settings(files: Path, **changes: str) -> dict[str, str]:
    data = {f"data.{name}": str(files / f"{name}.jsonl") for name in ("train", "dev", "test")}
    return {**FAST, **data, **{key.replace("__", "."): value for key, value in changes.items()}}


@pytest.fixture(scope="module")
def teacher(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds, kept as an ensemble."""
    folder = tmp_path_factory.mktemp("teacher") / "first"
    fit(load(None, settings(files, evaluate__ensemble="true")), folder, SILENT)
    return folder


@pytest.fixture(scope="module")
def linear_teacher(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model adds a linear model of words."""
    folder = tmp_path_factory.mktemp("linear") / "linear"
    fit(load(None, settings(files, finetune__wide="true")), folder, SILENT)
    return folder


def student(teacher: Path, folder: Path, **changes: object) -> Scores:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    scores = fit(student_of([str(teacher)], {**SMALLER, **dotted}), folder, SILENT)
    assert scores is not None
    return scores


def test_all_seeds_teach_a_smaller_model(teacher: Path, tmp_path: Path) -> None:
    scores = student(teacher, tmp_path / "small", evaluate__compare=["no-teacher"])
    kinds = {row.kind: row for row in scores.rows}
    assert kinds["teacher"].name == "teacher first, all seeds together"
    assert kinds["ours"].name == "task data only, taught"
    assert kinds["ablation"].name == "labels alone, without teachers"
    of_teacher = {row["kind"]: row for row in read_json(teacher / "scores.json")["rows"]}
    assert kinds["teacher"].test is not None and kinds["teacher"].against is not None
    assert kinds["teacher"].test.mean == of_teacher["ensemble"]["test"]["mean"]
    assert kinds["teacher"].parameters == of_teacher["ensemble"]["parameters"]
    assert "Its teacher first, all seeds together scores" in scores.verdict
    outputs = np.load(tmp_path / "small" / "teachers" / "train.npy")
    ensemble = load_models(teacher / "ensemble", torch.device("cpu"))
    texts = [json.loads(line) for line in _lines(teacher)]
    for row in (0, 7):  # each text by itself
        example = ensemble.task.example_of(texts[row]["text"])
        ((_, batch),) = ensemble.encoded([example]).in_order(1)
        with torch.no_grad():
            logits = [model(batch)[0, 0].numpy() for model in ensemble.models]
        np.testing.assert_allclose(outputs[row], np.mean(logits, 0), atol=1e-5)
    curve = read_json(tmp_path / "small" / "stage2" / "seed-1" / "curve.json")
    assert all({"task", "teacher"} <= set(point) for point in curve)


def test_the_bill_has_that_of_the_teacher(teacher: Path, tmp_path: Path) -> None:
    student(teacher, tmp_path / "small")
    bill = read_bill(tmp_path / "small")
    ((title, earlier),) = bill.earlier()
    assert title == "first" and earlier == read_bill(teacher)
    (one,) = bill.teachers
    weights = (teacher / "ensemble" / "model-1.safetensors").read_bytes()
    assert one["files"]["model-1.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert one["sha256"] == earlier.model["ensemble"]["sha256"]


def _lines(run: Path) -> list[str]:
    return Path(load(run / "recipe.toml").data.train).read_text(encoding="utf-8").splitlines()


def test_the_same_command_again_trains_nothing(teacher: Path, tmp_path: Path) -> None:
    student(teacher, tmp_path / "run")
    weights = tmp_path / "run" / "stage2" / "seed-1" / "best.safetensors"
    before = weights.stat().st_mtime_ns
    student(teacher, tmp_path / "run")
    assert weights.stat().st_mtime_ns == before
    student(teacher, tmp_path / "run", distill__labels=0.5)  # another weight trains stage 2 again
    assert weights.stat().st_mtime_ns != before


def test_a_linear_part_teaches_with_what_it_says_of_texts_it_was_not_fitted_to(
    linear_teacher: Path, tmp_path: Path
) -> None:
    student(linear_teacher, tmp_path / "run")
    outputs = np.load(tmp_path / "run" / "teachers" / "train.npy")
    loaded = load_models(linear_teacher / "model", torch.device("cpu"))
    assert loaded.wide is not None
    left_out = np.load(linear_teacher / "wide" / "train.npy")
    texts = [json.loads(line)["text"] for line in _lines(linear_teacher)]
    examples = [loaded.task.example_of(text) for text in texts]
    network = np.zeros_like(outputs)
    for row, example in enumerate(examples):
        ((_, batch),) = loaded.encoded([example]).in_order(1)
        model = loaded.models[0]
        with torch.no_grad():
            whole = model(batch)[0, 0].numpy()
        scale = model.wide_scale.item()
        assert batch.wide is not None
        network[row] = whole - scale * batch.wide[0, 0].numpy()
    np.testing.assert_allclose(outputs, network + scale * left_out, atol=1e-4)


def test_from_the_command_line_and_from_python(teacher: Path, tmp_path: Path) -> None:
    words = ["distill", str(teacher), "--out", str(tmp_path / "cli"), "--json"]
    words += [f"--{key}={value}" for key, value in SMALLER.items()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["kind"] for row in rows] == ["teacher", "ours"]
    shared = SILENT.sinks
    model = distill([teacher], tmp_path / "python", settings=SMALLER)
    assert SILENT.sinks is shared, "what others use must not record their work in this run"
    assert isinstance(model, TaskLM)
    same = TaskLM.load(tmp_path / "cli" / "model")
    assert list(model.predict(["the cat"])) == list(same.predict(["the cat"]))


def test_a_teacher_of_other_labels_is_refused(teacher: Path, tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        rows = [json.loads(line) for line in _lines(teacher)[:40]]
        write_jsonl(
            tmp_path / f"{name}.jsonl",
            [{**row, "text": f"{row['text']} {name}", "label": f"{row['label']}!"} for row in rows],
        )
    other = {f"data.{name}": str(tmp_path / f"{name}.jsonl") for name in ("train", "dev", "test")}
    with pytest.raises(RecipeError, match=r"cannot teach this task: labels differ: .*!'"):
        fit(student_of([str(teacher)], other), tmp_path / "run", SILENT)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="neither a run nor the folder of a run's model"):
        teachers_of([str(tmp_path)])
    with pytest.raises(RecipeError, match="name the run that teaches"):
        student_of([], {})


def test_a_run_without_a_model_is_refused(teacher: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes((teacher / "recipe.toml").read_bytes())
    with pytest.raises(RecipeError, match=r"has no model yet; finish it with: tasklm evaluate"):
        teachers_of([str(tmp_path)])


def test_comparing_without_teachers_needs_teachers(files: Path, tmp_path: Path) -> None:
    recipe = load(None, settings(files, evaluate__compare="no-teacher"))
    with pytest.raises(RecipeError, match=r"'no-teacher' goes with distill\.teachers"):
        fit(recipe, tmp_path / "run", SILENT)


def test_a_crf_teaches_a_plain_tagger_and_another_crf(tmp_path: Path) -> None:
    for seed, (name, count) in enumerate({"train": 60, "dev": 20, "test": 20}.items()):
        rows: list[dict[str, object]] = []
        for number, sentence in enumerate(sentences(count, seed)):
            words = [*sentence.split(), f"n{seed}x{number}"]
            tags = ["B-animal" if word in ("cat", "dog", "bird") else "O" for word in words]
            rows.append({"words": words, "tags": tags})
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    own = settings(tmp_path, kind__crf="true")
    fit(load(None, own), tmp_path / "crf", SILENT)
    for crf in (False, True):
        student(tmp_path / "crf", tmp_path / f"student-{crf}", kind__crf=crf)
        logits = np.load(tmp_path / f"student-{crf}" / "teachers" / "train.npy")
        words = sum(len(json.loads(line)["words"]) for line in _lines(tmp_path / "crf"))
        assert logits.shape == (words, 2)
        np.testing.assert_allclose(np.exp(logits).sum(1), 1.0, rtol=1e-5)  # probabilities of tags


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damaged_answers_of_teachers_are_computed_again(
    teacher: Path, tmp_path: Path, damage: str
) -> None:
    student(teacher, tmp_path / "run")
    file = tmp_path / "run" / "teachers" / "train.npy"
    whole = file.read_bytes()
    harmed = bytearray(whole)
    harmed[-1] ^= 64
    file.write_bytes(bytes(harmed) if damage == "flipped" else whole[:-9])
    shutil.rmtree(tmp_path / "run" / "stage2")  # so that they are needed
    student(teacher, tmp_path / "run")
    assert file.read_bytes() == whole


def test_teachers_also_label_selected_text(files: Path, teacher: Path, tmp_path: Path) -> None:
    corpus = str(files / "corpus.jsonl")
    student(teacher, tmp_path / "plain", data__corpus=[corpus])
    student(teacher, tmp_path / "more", data__corpus=[corpus], distill__passages=12)
    folder = tmp_path / "more" / "taught-text"
    given, outputs = read_json(folder / "examples.json"), np.load(folder / "outputs.npy")
    ensemble = load_models(teacher / "ensemble", torch.device("cpu"))
    assert len(given["texts"]) == len(given["labels"]) == len(outputs) == 12
    rows = (files / "train.jsonl").read_text(encoding="utf-8").splitlines()
    usual = median(len(json.loads(row)["text"].split()) for row in rows)
    assert max(len(text.split()) for text in given["texts"]) <= max(8, usual)
    example = ensemble.task.example_of(given["texts"][3])
    ((_, batch),) = ensemble.encoded([example]).in_order(1)
    with torch.no_grad():
        logits = np.mean([model(batch)[0, 0].numpy() for model in ensemble.models], 0)
    np.testing.assert_allclose(outputs[3], logits, atol=1e-5)
    assert given["labels"][3] == ensemble.task.labels[int(logits.argmax())]
    stages = [read_json(tmp_path / run / "stage1" / "summary.json") for run in ("plain", "more")]
    assert stages[0]["tokens"] == stages[1]["tokens"]  # text with labels is for stage 2 alone
    tunings = [
        read_json(tmp_path / run / "stage2" / "seed-1" / "summary.json")
        for run in ("plain", "more")
    ]
    assert tunings[1]["tokens"] > tunings[0]["tokens"]


def test_text_that_cannot_be_an_example_is_refused(
    files: Path, teacher: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="there is no selected text; give --corpus"):
        student(teacher, tmp_path / "none", distill__passages=5)


@pytest.mark.parametrize("kind", ["span", "parse"])
def test_answers_in_texts_are_taught_in_words(kind: str, tmp_path: Path) -> None:
    """The student's tokens are others than those of the two seeds that teach it."""
    (data,) = write_tasks(tmp_path / "data", [kind])
    changes = {"data.train": data, "data.leaks": "keep", "evaluate.ensemble": "true"}
    whole = fit(load(None, {**FAST, **changes, "finetune.seeds": "2"}), tmp_path / "two", SILENT)
    assert whole is not None
    scores = student(tmp_path / "two", tmp_path / "small", finetune__seeds=1)
    row = {one.kind: one for one in scores.rows}["teacher"]
    ensemble = {one.kind: one for one in whole.rows}["ensemble"]
    assert row.dev is not None and ensemble.dev is not None
    assert row.dev.mean == pytest.approx(ensemble.dev.mean)
    curve = read_json(tmp_path / "small" / "stage2" / "seed-1" / "curve.json")
    losses = [point["teacher"] for point in curve if "task" in point]
    assert all(np.isfinite(losses)) and losses[-1] < losses[0]


def test_a_student_that_starts_from_given_weights_takes_their_vocabulary(
    teacher: Path, tmp_path: Path
) -> None:
    """The vocabulary may have fewer types than the teacher's recipe allows."""
    start = {"train.start": str(teacher / "stage1"), "train.steps": 0}
    assert recipe_of(teacher).tokens.vocabulary is not None
    assert student_of([str(teacher)], {}).tokens.vocabulary == recipe_of(teacher).tokens.vocabulary
    recipe = student_of([str(teacher)], {**start, "finetune.seeds": 1})
    assert recipe.tokens.vocabulary is None
    assert fit(recipe, tmp_path / "student", SILENT) is not None
