"""Damage in a run folder: found, told, made again; and runs of the version before, which have no
checksums.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tasklm
from tasklm import artifacts
from tasklm.api.estimator import TaskLM
from tasklm.cli.app import app
from tasklm.errors import DamagedError, RunError
from tasklm.models.language_model import load_language_model
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.serve.explainer import Explainer
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT, Tracker
from tests.end_to_end.conftest import options


@pytest.fixture(scope="module")
def finished(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, with the cache beside it."""
    place = tmp_path_factory.mktemp("finished")
    fit(recipe_for(files, train__steps="6", finetune__epochs="1"), place / "run", SILENT)
    return place


def recipe_for(files: Path, **changes: str) -> Recipe:
    return load(None, options(files, **{"evaluate__bootstrap": "100", **changes}))


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to harm."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def flip(path: Path, at: int = -9) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def weights_of(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*.safetensors"))
    }


def check_files(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *map(str, words), "--files"])
    return result.exit_code, result.stdout


def test_check_files_says_what_is_damaged_and_what_to_do_and_that_works(place: Path) -> None:
    run, before = place / "run", weights_of(place)
    assert check_files(run)[0] == 0 and "none is damaged" in check_files(run)[1]
    (corpus,) = (place / ".cache").glob("corpus-*/text.bin")
    (index,) = (place / ".cache").glob("bm25-*/block-00000/tf.npy")
    names = (
        "stage2/seed-1/best.safetensors",
        "ranking/scores.npy",
        "model/tokenizer.json",
        "stage1/artefact.json",
        "scores.json",
    )
    for path in (*(run / name for name in names), corpus, index):
        flip(path, at=40)
    status, output = check_files(run, "--json")
    damages = {one["file"]: one["remedy"] for one in json.loads(output)["damaged"]}
    assert status == 1 and damages == {
        str(run / "stage2/seed-1/best.safetensors"): f"Rebuild it: tasklm finetune {run}",
        str(run / "ranking/scores.npy"): f"Rebuild it: tasklm select {run}",
        str(run / "model/tokenizer.json"): f"Rebuild it: tasklm evaluate {run}",
        str(run / "stage1/artefact.json"): f"Rebuild it: tasklm train {run}",
        str(run / "scores.json"): f"Rebuild it: tasklm report {run}",
        str(corpus): f"Delete {corpus.parent} and run the same command again to rebuild it.",
        str(index): f"Delete {index.parents[1]} and run the same command again to rebuild it.",
    }
    shutil.rmtree(corpus.parent)
    shutil.rmtree(index.parents[1])
    for remedy in damages.values():
        if remedy.startswith("Rebuild it: "):
            assert CliRunner().invoke(app, remedy.split()[3:]).exit_code == 0, remedy
    status, output = check_files(run)
    assert status == 0, output
    assert weights_of(place) == before


def test_check_files_tells_a_damaged_record_in_the_cache(place: Path) -> None:
    for folder in sorted((place / ".cache").glob("*-*/")):
        record = folder / "artefact.json"
        whole = record.read_bytes()
        record.write_bytes(whole[:20])
        status, output = check_files(place / "run", "--json")
        (damage,) = json.loads(output)["damaged"]
        assert (
            status == 1
            and damage["file"] == str(record)
            and f"Delete {folder} and run" in damage["remedy"]
        )
        record.write_bytes(whole)
        (folder / "damaged.json").unlink(missing_ok=True)


def test_a_model_by_itself_is_checked_too(place: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(place / "run" / "model", tmp_path / "shipped"))
    assert check_files(model)[0] == 0
    flip(model / "model.safetensors")
    status, output = check_files(model)
    assert (
        status == 1
        and f"Copy {model} again from where it was trained." in output
        and not (model / "damaged.json").exists()
    )
    with pytest.raises(
        DamagedError,
        match=r"model\.safetensors is damaged \(its checksum does not match\)\. Copy .*shipped again",
    ):
        TaskLM.load(model)
    (damage,) = tasklm.check_files(model).damaged
    assert damage.file == str(model / "model.safetensors")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        with pytest.raises(RunError, match="Give the folder of a run"):
            tasklm.check_files(tmp_path / name)


def test_save_does_not_copy_a_damaged_model(place: Path, tmp_path: Path) -> None:
    model = TaskLM.load(place / "run")
    model.save(tmp_path / "saved")
    assert check_files(tmp_path / "saved")[0] == 0
    flip(place / "run" / "model" / "model.safetensors")
    with pytest.raises(DamagedError, match="Rebuild it: tasklm evaluate"):
        model.save(tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "saved"]


def test_what_reads_a_run_refuses_what_is_damaged_in_it(place: Path) -> None:
    run = place / "run"
    flip(run / "stage1" / "model.safetensors")
    with pytest.raises(DamagedError, match=rf"Rebuild it: tasklm train {run}"):
        load_language_model(run, torch.device("cpu"))
    with pytest.raises(DamagedError, match=rf"Rebuild it: tasklm train {run}"):
        Explainer(run)
    fit(load(run / "recipe.toml"), run, SILENT, until="train")
    flip(run / "selected" / "selected.parquet", at=100)
    with pytest.raises(DamagedError, match=rf"Rebuild it: tasklm select {run}"):
        Explainer(run)
    flip(run / "scores.json", at=100)
    with pytest.raises(DamagedError, match=rf"scores\.json is damaged .*tasklm report {run}"):
        TaskLM.load(run)


def test_what_is_too_large_to_be_read_each_time_is_read_before_something_is_made_of_it(
    place: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "READ_ANYWAY", 0)
    messages: list[str] = []
    monkeypatch.setattr(Tracker, "warn", lambda self, message: messages.append(message))
    other = recipe_for(files, train__steps="6", finetune__epochs="2")
    fit(other, tmp_path / "whole" / "run", SILENT, until="evaluate")
    (corpus,) = (place / ".cache").glob("corpus-*/text.bin")
    flip(place / "run" / "stage1" / "model.safetensors")
    right = corpus.read_bytes()
    flip(corpus)
    fit(other, place / "run", SILENT, until="evaluate")  # stage 2 is another, stage 1 the same
    assert [message for message in messages if "rebuilding stage1" in message]
    whole, after = weights_of(tmp_path / "whole"), weights_of(place)
    assert whole == after
    assert corpus.read_bytes() != right  # nothing was made of it
    fit(
        recipe_for(files, train__steps="6", finetune__epochs="2", select__k="5"),
        place / "run",
        SILENT,
        until="select",
    )
    assert [
        message for message in messages if f"rebuilding {corpus.parent.name}" in message
    ] and corpus.read_bytes() == right


def test_a_run_of_the_version_before_goes_on_and_its_model_loads(place: Path, files: Path) -> None:
    run = place / "run"
    for path in place.rglob("*.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        if (
            isinstance(values, dict) and path.name != "files.json"
        ):  # those of a corpus, no checksums
            older = {
                name: value
                for name, value in values.items()
                if name not in ("crc32", "files", "uses")
            }
            path.write_text(json.dumps(older), encoding="utf-8")
    before = {
        path: path.stat().st_mtime_ns
        for path in place.rglob("*")
        if path.suffix in (".safetensors", ".npy", ".parquet")
    }
    fit(recipe_for(files, train__steps="6", finetune__epochs="1"), run, SILENT)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert TaskLM.load(run).predict(["a dog likes music"]).shape == (1,)
    status, output = check_files(run)
    assert (
        status == 0 and f"{run / 'stage1'} has no checksums: an earlier version wrote it." in output
    )
    (run / "tokens" / "offsets.npy").write_bytes(b"")
    (run / "plan" / "plan.json").write_bytes(b"{}")
    (run / "stage1" / "model.safetensors").write_bytes(b"")
    fit(recipe_for(files, train__steps="6", finetune__epochs="2"), run, SILENT)
    assert read_json(run / "stage1" / "artefact.json")["files"]
