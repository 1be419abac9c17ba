"""Several tasks in one model: trained, compared with a model for each, taught by these, cut off."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError
from tasklm.evaluate.scores import Scores, from_dict
from tasklm.models.task_model import load_models
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import check, fit
from tasklm.pipeline.teachers import student_of
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json
from tasklm.tasks.several import Several, members_of
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.forking import Commands
from tests.end_to_end.test_kill import kill_at

FAST = {**QUICK, "train.steps": "10", "finetune.epochs": "2", "finetune.seeds": "1"}
SPLITS = (("train", 80, 1), ("dev", 30, 2), ("test", 30, 3))
TASKS = ("animals", "scores", "words")


def scored(count: int, seed: int) -> list[dict[str, object]]:
    """Texts with a number: how many of their words are long."""
    return [
        {"text": text, "score": sum(len(word) > 4 for word in text.split()) / 2}
        for text in sentences(count, seed)
    ]


def tagged(count: int, seed: int) -> list[dict[str, object]]:
    """Sentences whose words are tagged by their length."""
    split = [text.split() for text in sentences(count, seed)]
    return [{"words": words, "tags": ["ABC"[len(word) % 3] for word in words]} for words in split]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three tasks of three kinds."""
    folder = tmp_path_factory.mktemp("tasks")
    makers = {"animals": labelled, "scores": scored, "words": tagged}
    for number, name in enumerate(TASKS):
        (folder / name).mkdir()
        for split, count, seed in SPLITS:
            rows = makers[name](count * (number + 1) // 2, 1000 * number + seed)
            write_jsonl(folder / name / f"{split}.jsonl", rows)
    return folder


def settings(tasks: Path, **changes: object) -> dict[str, object]:
    named = {"several.tasks": [str(tasks / name) for name in TASKS]}
    return {**FAST, **named, **{key.replace("__", "."): value for key, value in changes.items()}}


def run(folder: Path, values: dict[str, object]) -> Scores:
    scores = fit(load(None, values), folder, SILENT)
    assert scores is not None
    return scores


@pytest.fixture(scope="module")
def many(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the three tasks, compared with a model for each."""
    folder = tmp_path_factory.mktemp("many") / "run"
    run(folder, settings(tasks, evaluate__compare=["single"]))
    return folder


@pytest.fixture(scope="module")
def alone(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each task by itself."""
    folder, runs = tmp_path_factory.mktemp("alone"), {}
    for name in TASKS:
        run(folder / name, {**FAST, "data.train": str(tasks / name)})
        runs[name] = folder / name
    return runs


def test_every_row_has_a_score_for_each_task_and_their_mean(many: Path) -> None:
    scores = from_dict(read_json(many / "scores.json"))
    rows = {row.name: row for row in scores.rows}
    assert set(rows) == {
        "simplest baseline of each task",
        "linear model of each task",
        "a model for each task",
        "task data only, 3 tasks together",
    }
    for row in rows.values():
        assert [one.name for one in row.tasks] == list(TASKS)
        for split in ("dev", "test"):
            whole, parts = getattr(row, split), [getattr(one, split) for one in row.tasks]
            assert whole.mean == pytest.approx(np.mean([part.mean for part in parts]))
    assert [one.metric for one in scores.rows[0].tasks] == ["macro_f1", "spearman", "accuracy"]
    assert "Of the 3 tasks, " in scores.verdict and "a model of their own" in scores.verdict
    assert "Each task" in (many / "report.html").read_text(encoding="utf-8")


def test_the_bill_has_the_files_of_each_task(many: Path) -> None:
    bill, times = read_bill(many), np.load(many / "stage1" / "examples-read.npy")
    counts = {
        (data.task, Path(data.path).stem): dict(part.examples)
        for data in bill.labelled
        for part in data.parts
    }
    assert counts == {
        (name, split): {split: count * (number + 1) // 2}
        for number, name in enumerate(TASKS)
        for split, count, _ in SPLITS
    }
    assert sum(part.share for _, part in bill.parts()) == pytest.approx(1)
    read = {data.task: data.parts[0].tokens_read for data in bill.labelled if "train" in data.path}
    assert sum(read.values()) == bill.tokens_read and all(read.values())
    assert times.sum() == 10 * 16 - 1  # ten batches of an epoch of 239, one of them with 15


def test_the_model_of_each_task_sees_its_own_examples_alone(many: Path) -> None:
    scores = from_dict(read_json(many / "scores.json"))
    own = next(row for row in scores.rows if row.name == "a model for each task")
    for one in own.tasks:
        folder = many / "compare" / "single" / one.name
        answers = read_json(folder / "predictions" / "test-1.json")
        ours = read_json(many / "predictions" / "test-1.json")
        assert len(answers) == sum(answer["task"] == one.name for answer in ours)
        assert read_json(folder / "stage1" / "summary.json")["steps"] == 10
        assert read_json(folder / "stage2" / "seed-1" / "summary.json")["epochs"] == 2


def test_the_log_says_how_long_the_comparison_takes(many: Path) -> None:
    log = (many / "log.txt").read_text(encoding="utf-8")
    assert "training the ablation: a model for each task (about " in log
    assert "beyond --minutes" not in log


def test_the_saved_model_knows_its_tasks(many: Path) -> None:
    loaded = load_models(many / "model", torch.device("cpu"))
    assert isinstance(loaded.task, Several)
    assert [member.name for member in members_of(loaded.task)] == list(TASKS)
    with pytest.raises(DataError, match="several tasks"):
        loaded.task.example_of("a text")


def test_models_of_single_tasks_teach_one_of_all(alone: dict[str, Path], tmp_path: Path) -> None:
    recipe = student_of([str(alone[name]) for name in TASKS], {})
    assert [entry.partition("=")[0] for entry in recipe.several.tasks] == list(TASKS)
    scores = fit(recipe, tmp_path / "student", SILENT)
    assert scores is not None
    teachers = next(row for row in scores.rows if row.kind == "teacher")
    assert teachers.name == "teachers of the tasks"
    for one in teachers.tasks:
        rows = read_json(alone[one.name] / "scores.json")["rows"]
        single = next(row for row in rows if row["kind"] == "ours")
        assert one.test is not None and one.test.mean == pytest.approx(single["test"]["mean"])
    taught = np.load(tmp_path / "student" / "teachers" / "train.npy")
    loaded = load_models(tmp_path / "student" / "model", torch.device("cpu"))
    first = members_of(loaded.task)[0]
    teacher = load_models(alone["animals"] / "model", torch.device("cpu"))
    text = json.loads(Path(first_line(alone["animals"])).read_text().splitlines()[0])["text"]
    ((_, batch),) = teacher.encoded([teacher.task.example_of(text)]).in_order(1)
    with torch.no_grad():
        logits = teacher.model(batch)[0, 0].numpy()
    np.testing.assert_allclose(taught[0, first.columns], logits, atol=1e-5)
    others = np.delete(taught[0], np.arange(first.first, first.first + first.outputs))
    assert not others.any()
    words = sum(len(json.loads(line)["words"]) for line in _lines(alone["words"]))
    assert len(taught) == 40 + 80 + words  # an answer for each example, and for each word


def first_line(run_folder: Path) -> str:
    return str(load(run_folder / "recipe.toml").data.train)


def _lines(run_folder: Path) -> list[str]:
    return Path(first_line(run_folder)).read_text(encoding="utf-8").splitlines()


def test_a_model_of_several_tasks_teaches_the_next(many: Path, tmp_path: Path) -> None:
    scores = fit(student_of([str(many)], {}), tmp_path / "again", SILENT)
    assert scores is not None
    teachers = next(row for row in scores.rows if row.kind == "teacher")
    before = from_dict(read_json(many / "scores.json")).ours
    assert before is not None and before.test is not None and teachers.test is not None
    assert teachers.test.mean == pytest.approx(before.test.mean)


def test_a_task_without_a_teacher_is_named(
    alone: dict[str, Path], tasks: Path, tmp_path: Path
) -> None:
    given = settings(tasks, distill__teachers=[str(alone["animals"])])
    with pytest.raises(RecipeError, match="the task 'scores'"):
        fit(load(None, given), tmp_path / "run", SILENT)


def test_text_of_one_task_in_the_test_set_of_another_is_refused(
    tasks: Path, tmp_path: Path
) -> None:
    leaked = [json.loads(line) for line in (tasks / "animals/test.jsonl").open()][:4]
    rows = [json.loads(line) for line in (tasks / "scores/train.jsonl").open()]
    (tmp_path / "leaky").mkdir()
    for split in ("dev", "test"):
        (tmp_path / "leaky" / f"{split}.jsonl").write_bytes(
            (tasks / "scores" / f"{split}.jsonl").read_bytes()
        )
    rows += [{"text": row["text"].upper(), "score": 1.0} for row in leaked]
    write_jsonl(tmp_path / "leaky" / "train.jsonl", rows)
    given = {**FAST, "several.tasks": [str(tasks / "animals"), str(tmp_path / "leaky")]}
    findings = check(load(None, given), tmp_path / "check", SILENT)
    (error,) = [one for one in findings if one.level == "error"]
    assert "4 examples in test of animals are in train of leaky" in error.message
    with pytest.raises(DataError, match="train of leaky"):
        run(tmp_path / "refused", given)
    dropped = check(load(None, {**given, "data.leaks": "drop"}), tmp_path / "dropped", SILENT)
    assert all(one.level != "error" for one in dropped)


def test_the_command_takes_several_folders(tasks: Path, tmp_path: Path) -> None:
    words = ["fit", str(tasks / "animals"), f"numbers={tasks / 'scores'}", "--out"]
    words += [str(tmp_path / "run")]
    for key, value in FAST.items():
        words += [f"--{key}", value]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "numbers spearman" in result.output
    result = CliRunner().invoke(app, [*words, "--dev", "x.csv"])
    assert result.exit_code == 1 and "for one task" in str(result.exception or result.output)


def test_killed_in_both_stages_ends_in_identical_weights(
    tasks: Path, commands: Commands, tmp_path: Path
) -> None:
    words = ["fit", *(str(tasks / name) for name in TASKS), "--train.checkpoint_seconds", "0"]
    for key, value in FAST.items():
        words += [f"--{key}", value]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    commands.run([*words, "--out", str(whole)])
    for point in ("stage1.partial/checkpoint-*", "stage2/seed-1.partial/checkpoint-*"):
        kill_at(commands, [*words, "--out", str(cut)], cut, point, 0.0)
    commands.run([*words, "--out", str(cut)])
    one = load_weights(whole / "stage2" / "seed-1" / "best.safetensors")
    two = load_weights(cut / "stage2" / "seed-1" / "best.safetensors")
    assert all(torch.equal(one[name], two[name]) for name in one)
