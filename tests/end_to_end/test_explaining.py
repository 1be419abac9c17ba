"""`tasklm explain` and `tasklm check --influence` on a small run, from files to what people see."""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import RecipeError, RunError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.finished_run import run_of
from tasklm.tracking import Tracker
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import options

runner = CliRunner()
ASKED = "the cat hears cold water number 5 ."
WRONG = {3 + 20 * i for i in range(8)}  # lines whose labels are flipped: 5 % of 160


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, of whose training labels some are flipped and which has a copy of the text
    asked about.
    """
    data, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("runs") / "first"
    rows = labelled(160, 1)
    rows[50] = {"text": ASKED, "label": "yes"}
    other = {"yes": "no", "no": "yes"}
    flipped = [
        {**row, "label": other[str(row["label"])]} if line in WRONG else row
        for line, row in enumerate(rows, 1)
    ]
    write_jsonl(data / "train.jsonl", flipped)
    dev, test = labelled(60, 2), labelled(80, 3)
    test[0]["label"] = other[str(test[0]["label"])]  # a mistake that the report has to show
    write_jsonl(data / "dev.jsonl", dev)
    write_jsonl(data / "test.jsonl", test)
    write_jsonl(
        data / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + i)), "source": f"s{i % 3}"} for i in range(200)],
    )
    keys = {
        "finetune__seeds": "1",
        "finetune__epochs": "8",
        "train__steps": "150",
        "data__leaks": "keep",
    }
    fit(load(None, options(data, **keys)), folder, Tracker())
    return folder


def test_explain_shows_the_copy_and_only_what_was_trained_on(done: Path) -> None:
    result = runner.invoke(app, ["explain", str(done / "model"), ASKED, "--top", "160", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["label"] == "yes" and 0.5 < found["probability"] <= 1
    supporting = found["examples"]["supporting"]
    opposing = found["examples"]["opposing"]
    (copy,) = [attribution for attribution in supporting if attribution["text"] == ASKED]
    assert (
        copy["label"] == "yes"
        and copy["score"] == pytest.approx(1, abs=1e-4)
        and copy["score"] > supporting[5]["score"] - 1e-4
    )
    assert copy["where"].endswith("train.jsonl, line 51") and set(copy["shared"]) == set(
        ASKED.replace(" .", "").split()
    )
    assert {attribution["label"] for attribution in supporting[:5]} == {"yes"} and opposing[0][
        "label"
    ] == "no"
    assert (found["examples"]["compared"], found["examples"]["in_all"]) == (160, 160)
    passages = found["passages"]
    shown = [*passages["supporting"], *passages["opposing"]]
    assert shown and all(
        -1 <= attribution["score"] <= 1 and attribution["where"][0] == "s" and attribution["id"]
        for attribution in shown
    )
    assert passages["compared"] == min(200, passages["in_all"])
    stored = {
        row["id"]: row for row in pq.read_table(done / "selected" / "selected.parquet").to_pylist()
    }
    assert all(
        (stored[attribution["id"]]["text"], stored[attribution["id"]]["source"])
        == (attribution["text"], attribution["where"])
        for attribution in shown
    )


def test_explain_as_a_table(done: Path) -> None:
    result = runner.invoke(app, ["explain", str(done), ASKED, "--top", "2"], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    for words in (
        "yes (probability",
        "training examples that support yes (160 of 160",
        "that speak against yes",
        "selected passages",
    ):
        assert words in result.output
    assert "+1.000" in result.output and "train.jsonl, line" in result.output


def test_explain_in_python_and_what_is_refused(done: Path, tmp_path: Path) -> None:
    model = TaskLM.load(done)
    found = model.explain(ASKED, top=2)
    assert found.label == "yes" and found.examples.supporting[0].score == pytest.approx(1, abs=1e-4)
    model.save(tmp_path / "alone")
    alone = TaskLM.load(tmp_path / "alone")
    assert alone.predict([ASKED]).tolist() == ["yes"]
    with pytest.raises(RunError, match=r"is only a model.*Give the folder of the run"):
        alone.explain(ASKED)
    with pytest.raises(RunError, match="not been trained"):
        TaskLM().explain(ASKED)
    with pytest.raises(RunError, match="there is no folder"):
        run_of(tmp_path / "nowhere")
    (tmp_path / "begun").mkdir()
    with pytest.raises(RunError, match="not a run folder"):
        run_of(tmp_path / "begun")
    shutil.copy(done / "recipe.toml", tmp_path / "begun")
    with pytest.raises(RunError, match="tasklm evaluate"):
        run_of(tmp_path / "begun")


def test_a_training_file_with_other_labels_is_refused(done: Path, tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "train.jsonl",
        [
            {"text": text, "label": random.Random(i).choice("ab")}
            for i, text in enumerate(sentences(40))
        ],
    )
    shutil.copytree(done / "model", tmp_path / "run" / "model")
    text = (done / "recipe.toml").read_text(encoding="utf-8").splitlines()
    changed = [
        f'train = "{tmp_path / "train.jsonl"}"' if line.startswith("train = ") else line
        for line in text
    ]
    changed = [line for line in changed if not line.startswith(("dev = ", "test = "))]
    (tmp_path / "run" / "recipe.toml").write_text("\n".join(changed), encoding="utf-8")
    result = runner.invoke(app, ["explain", str(tmp_path / "run"), ASKED])
    assert isinstance(result.exception, RunError) and "the file has changed" in str(
        result.exception
    )


def test_the_report_says_what_supporting_a_mistake(done: Path) -> None:
    report = (done / "report.html").read_text(encoding="utf-8")
    mistakes = (
        report.split('id="mistakes"')[1].split("</section>")[0] if 'id="mistakes"' in report else ""
    )
    assert (
        mistakes
        and "Training examples that most support" in mistakes
        and "train.jsonl, line" in mistakes
    )


def test_flipped_labels_are_at_the_top_of_the_list(done: Path) -> None:
    result = runner.invoke(app, ["check", str(done), "--influence", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [one["rank"] for one in found] == list(range(1, len(found) + 1))
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    lines = {one["line"] for one in found[:16]}  # the top 10 % of 160
    assert len(WRONG & lines) >= 0.6 * len(WRONG)
    assert all(one["label"] != one["suggested"] for one in found)
    with (done / "suspicious_labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["line"]) for row in rows] == [one["line"] for one in found] and rows[0][
        "text"
    ] == found[0]["text"]
    shown = runner.invoke(
        app, ["check", str(done), "--influence", "--top", "2"], env={"COLUMNS": "160"}
    )
    assert shown.exit_code == 0 and "suspicious_labels.csv" in shown.output
    for one in found[:2]:
        assert (
            f"line {one['line']}; labelled {one['label']}, similar examples suggest {one['suggested']}"
            in shown.output
        )


def test_check_by_influence_needs_a_run(done: Path) -> None:
    for given, message in (
        (done / "scores.json", "is a file. Give the folder of a finished run"),
        (done / "no", "there is no folder"),
    ):
        result = runner.invoke(app, ["check", str(given), "--influence"])
        assert isinstance(result.exception, RunError) and message in str(result.exception)
    result = runner.invoke(app, ["check", str(done), "--influence", "--select.k", "5"])
    assert isinstance(result.exception, RecipeError) and "--influence" in str(result.exception)
