"""An update of a linear model: what it learns, keeps, refuses, and how it continues."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tasklm
from tasklm import TaskLM
from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.pipeline.bill_check import verify_bill
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.run_folder import recipe_of
from tasklm.storage.checksums import content_of
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT, Tracker
from tasklm.updating import flow, linear_learner
from tasklm.updating.flow import update
from tasklm.updating.reading import Request
from tasklm.updating.record import UpdateResult
from tests.conftest import write_jsonl
from tests.updating.small import first_run, rows


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, once for the file."""
    return first_run(tmp_path_factory.mktemp("first"))


@pytest.fixture
def run(first: Path, tmp_path: Path) -> Path:
    """A copy of that run to update; its data lies beside the first."""
    shutil.copytree(first, tmp_path / "run")
    return tmp_path / "run"


def file(first: Path, name: str) -> str:
    return str(first.parent / f"{name}.jsonl")


def read_rows(first: Path, name: str) -> list[dict[str, object]]:
    lines = Path(file(first, name)).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def contents(folder: Path) -> dict[str, bytes]:
    """All that was learnt and answered in an update, without times."""
    names = ("model/wide/*", "model/*.safetensors", "answers/*-*.json", "changed.jsonl")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for name in names
        for path in sorted(folder.glob(name))
    }


def test_new_classes_are_learnt_and_old_ones_stay(first: Path, run: Path) -> None:
    before = content_of(run / "model")
    request = Request(file(first, "new-class"), test=file(first, "new-test"))
    result = update(run, request, SILENT)
    groups = {group.name: group for group in result.groups}
    assert result.published and result.new_classes == ["music"]
    assert groups["new classes"].before == 0.0 and groups["new classes"].after > 0.7
    assert groups["old classes"].after >= groups["old classes"].before
    assert groups["all"].examples == 42
    model = TaskLM.load(run)
    assert model.classes_.tolist() == ["food", "music", "sport"]
    assert model.predict(["a drum and a choir tune", "bread soup"]).tolist() == ["music", "food"]
    assert content_of(run / "updates/0/model") == before
    assert TaskLM.load(run / "updates/0/model").classes_.tolist() == ["food", "sport"]
    lines = (run / "updates/1/changed.jsonl").read_text("utf-8").splitlines()
    changed = [json.loads(line) for line in lines]
    assert result.changed == len(changed) >= 9
    assert "music" in {one["after"] for one in changed if one["truth"] == "music"}
    assert "Predictions that changed" in (run / "updates/1/report.html").read_text("utf-8")


def test_the_result_is_close_to_training_on_everything(
    first: Path, run: Path, tmp_path: Path
) -> None:
    result = update(run, Request(file(first, "more")), SILENT)
    recipe = recipe_of(run / "updates/1").changed(hardware={"cache": str(tmp_path / "cache")})
    scratch = fit(recipe, tmp_path / "scratch", Tracker())
    assert scratch is not None and scratch.ours is not None and scratch.ours.test is not None
    assert abs(scratch.ours.test.mean - result.groups[0].after) < 0.04
    assert scratch.data["train"] == result.examples["train"]


def test_the_same_command_does_nothing_and_another_begins_from_there(
    first: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = update(run, Request(file(first, "more")), SILENT)
    before = {path: path.stat().st_mtime_ns for path in (run / "model").rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr(linear_learner, "refit", None)  # nothing is fitted
        assert update(run, Request(file(first, "more")), SILENT) == once
    assert {path: path.stat().st_mtime_ns for path in (run / "model").rglob("*")} == before
    second = update(run, Request(file(first, "new-class")), SILENT)
    assert second.number == 2
    assert second.examples["train"] > once.examples["train"]
    assert recipe_of(run / "updates/2").data.more == (
        file(first, "more"),
        file(first, "new-class"),
    )


@pytest.mark.parametrize("place", ["write_changed", "keep_bill", "render_page", "_publish"])
def test_a_stopped_update_continues_and_ends_alike(
    first: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    request = Request(file(first, "new-class"), test=file(first, "new-test"))
    shutil.copytree(run, tmp_path / "whole")
    update(tmp_path / "whole", request, SILENT)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = content_of(run / "model")
    with monkeypatch.context() as patch:
        patch.setattr(flow, place, stop)
        with pytest.raises(KeyboardInterrupt):
            update(run, request, SILENT)
    assert content_of(run / "model") == before
    result = update(run, request, SILENT)
    assert result.published and result.number == 1
    assert contents(run / "updates/1") == contents(tmp_path / "whole/updates/1")
    assert content_of(run / "model") == content_of(tmp_path / "whole/model")


def test_a_refit_that_is_read_again_answers_alike(
    first: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(file(first, "more"))
    shutil.copytree(run, tmp_path / "whole")
    update(tmp_path / "whole", request, SILENT)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(linear_learner, "_answer", stop)
        with pytest.raises(KeyboardInterrupt):
            update(run, request, SILENT)
    update(run, request, SILENT)
    assert contents(run / "updates/1") == contents(tmp_path / "whole/updates/1")


def test_a_worse_model_stays_beside_the_old_one(first: Path, run: Path, tmp_path: Path) -> None:
    swap = {"sport": "food", "food": "sport"}
    wrong = [{**row, "label": swap[str(row["label"])]} for row in rows("sport food", 600, 9)]
    path, dev = write_jsonl(tmp_path / "wrong.jsonl", wrong), tmp_path / "dev.jsonl"
    write_jsonl(dev, rows("sport food", 40, 10))
    before = content_of(run / "model")
    result = update(run, Request(str(path), dev=str(dev)), SILENT)
    assert not result.published and result.dev_after < result.dev_before
    assert content_of(run / "model") == before
    assert "stays as it was" in str(result) and "updates/1/model" in str(result)
    assert TaskLM.load(run / "updates/1").predict(["bread soup oven"]).tolist() == ["sport"]


def test_a_repeated_first_command_keeps_the_update(first: Path, run: Path) -> None:
    update(run, Request(file(first, "new-class")), SILENT)
    after = content_of(run / "model")
    fit(load(run / "recipe.toml"), run, Tracker())
    assert content_of(run / "model") == after
    shutil.rmtree(run / "model")
    shutil.copytree(run / "updates/0/model", run / "model")  # as the page says to go back
    assert TaskLM.load(run).classes_.tolist() == ["food", "sport"]
    again = update(run, Request(file(first, "new-class")), SILENT)
    assert again.number == 1 and content_of(run / "model") == after


def test_an_updated_model_has_sets_of_labels_of_its_own(first: Path, run: Path) -> None:
    before = (run / "model/coverage.json").read_bytes()
    update(run, Request(file(first, "new-class")), SILENT)
    own = (run / "model/coverage.json").read_bytes()
    assert own != before and (run / "updates/0/model/coverage.json").read_bytes() == before
    dev = [str(row["text"]) for row in read_rows(first, "dev")]
    rows = TaskLM.load(run).predict_sets(dev, coverage=0.8)
    truth = [row["label"] for row in read_rows(first, "dev")]
    right = [one in row.get("labels", []) for one, row in zip(truth, rows, strict=True)]
    assert sum(right) >= 0.8 * len(dev) - 1
    fit(load(run / "recipe.toml"), run, Tracker())  # which counts the updated model as its own
    assert (run / "model/coverage.json").read_bytes() == own


def test_the_bill_counts_the_new_files(first: Path, run: Path) -> None:
    update(run, Request(file(first, "new-class"), test=file(first, "new-test")), SILENT)
    bill = read_bill(run)
    counts = {Path(one.path).name: one.parts[0].examples for one in bill.labelled}
    assert counts["train.jsonl"] == {"train": 60} and counts["new-test.jsonl"] == {"test": 12}
    assert set(counts["new-class.jsonl"]) == {"train", "dev"}
    assert sum(counts["new-class.jsonl"].values()) == 90
    assert not verify_bill(run).problems
    exported = json.loads((run / "model/bill.json").read_text("utf-8"))
    assert [one["path"] for one in exported["labelled"]][-2:] == [
        "new-class.jsonl",
        "new-test.jsonl",
    ]


def test_known_rows_are_left_out_and_changed_labels_named(
    first: Path, run: Path, tmp_path: Path
) -> None:
    train = read_rows(first, "train")
    other = {**train[0], "label": "food" if train[0]["label"] == "sport" else "sport"}
    path = write_jsonl(tmp_path / "mixed.jsonl", [*train[1:11], other, *rows("sport", 5, 7)])
    result = update(run, Request(str(path)), SILENT)
    notes = " ".join(result.notes)
    assert "10 left out because train or dev has them" in notes
    assert "1 texts have another label" in notes
    assert result.examples["train"] + result.examples["dev"] == 60 + 20 + 5


def test_what_cannot_be_updated_is_refused_with_the_remedy(
    first: Path, run: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="nothing to learn; give --train MORE"):
        update(run, Request(), SILENT)
    with pytest.raises(RunError, match="is not a run folder"):
        update(tmp_path, Request(file(first, "more")), SILENT)
    with pytest.raises(DataError, match=r"also occurs in test(.|\n)*data\.leaks"):
        update(run, Request(file(first, "test")), SILENT)
    with pytest.raises(DataError, match="no example that the run does not have"):
        update(run, Request(file(first, "train")), SILENT)
    with pytest.raises(RecipeError, match="new text does not change this model"):
        update(run, Request(corpus=(file(first, "more"),)), SILENT)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "scores.json").unlink()
    with pytest.raises(RunError, match="is not finished"):
        update(unfinished, Request(file(first, "more")), SILENT)


def test_leaks_are_dropped_where_the_settings_say_so(first: Path, run: Path) -> None:
    test = read_rows(first, "test")
    path = write_jsonl(run.parent / "leaky.jsonl", [*test[:4], *rows("sport food", 10, 8)])
    result = update(run, Request(str(path), settings={"data.leaks": "drop"}), SILENT)
    assert result.examples["test"] == 30
    assert result.examples["train"] + result.examples["dev"] == 60 + 20 + 10
    assert any("4 also occur in dev or test" in note for note in result.notes)


def test_changed_files_of_the_run_are_refused(first: Path, tmp_path: Path) -> None:
    own = first_run(tmp_path)
    path = tmp_path / "train.jsonl"
    path.write_text(path.read_text("utf-8").replace("ball", "bowl"), encoding="utf-8")
    with pytest.raises(RunError, match="has changed since the run"):
        update(own, Request(str(tmp_path / "more.jsonl")), SILENT)
    path.unlink()
    with pytest.raises(RunError, match="is gone"):
        update(own, Request(str(tmp_path / "more.jsonl")), SILENT)


def test_command_and_python_give_the_same(first: Path, run: Path) -> None:
    words = ["update", str(run), "--train", file(first, "new-class")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    for text in ("old classes", "new classes: music", "to go back", "updates/1/report.html"):
        assert text in shown.output.replace("\n", " ")
    printed = CliRunner().invoke(app, [*words, "--json"])
    result = tasklm.update(run, train=file(first, "new-class"))
    assert UpdateResult.from_dict(json.loads(printed.stdout)) == result
    model = TaskLM.load(run)
    assert model.update(train=file(first, "more")).number == 2
    assert model.predict(["a drum and a choir tune"]).tolist() == ["music"]
    assert read_json(run / "model/config.json")["about"]["update"] == 2


def test_a_linear_model_is_updated_without_torch(first: Path, run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasklm.updating.flow import update; "
        "from tasklm.updating.reading import Request; from tasklm.tracking import SILENT; "
        "update(Path(sys.argv[1]), Request(sys.argv[2]), SILENT); "
        "print({'torch', 'sklearn', 'numba', 'matplotlib', 'joblib'} & set(sys.modules))"
    )
    words = [sys.executable, "-c", code, str(run), file(first, "more")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
