"""Stage 1 is written so that its language model can be loaded again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from tasklm.errors import RunError
from tasklm.models.language_model import describe_language_model, load_language_model
from tasklm.models.weights import load_weights, save_weights
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import joint_stage
from tests.train.test_every_objective import NAMES
from tests.train.test_loop import parts  # noqa: F401  (a fixture)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(parts: TrainingContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "first"
    (run / "stage1").mkdir(parents=True)
    run_stage1(
        run / "stage1",
        parts,
        Train(objective="electric", mask_rate=0.2, average=0.9),
        Stage1Plan(3, 1, 8, None),
        SILENT,
    )
    return run


def test_what_stage_1_wrote_comes_back(trained: Path, parts: TrainingContext) -> None:
    model = load_language_model(trained, CPU)
    stored = load_weights(trained / "stage1" / "model.safetensors")
    loaded = {f"encoder.{name}": value for name, value in model.encoder.state_dict().items()}
    loaded |= {f"objective.{name}": value for name, value in model.objective.state_dict().items()}
    assert set(loaded) == {name for name in stored if not name.startswith("head.")}
    assert all(torch.equal(stored[name], value) for name, value in loaded.items())
    assert model.settings == Train(objective="electric", mask_rate=0.2, average=0.9)
    assert model.length == parts.length and model.encoder.shape == parts.shape
    assert model.vocabulary.encode(["the cat likes music"]) == parts.vocabulary.encode(
        ["the cat likes music"]
    )
    assert not model.encoder.training and not model.objective.training
    again = load_language_model(trained / "stage1", CPU)
    assert torch.equal(again.encoder.token.weight, model.encoder.token.weight)


@pytest.mark.parametrize("name", NAMES)
def test_every_objective_can_be_loaded(parts: TrainingContext, tmp_path: Path, name: str) -> None:
    settings = Train(objective=name)
    save_weights(
        tmp_path / "model.safetensors", joint_stage(parts, settings, 1, 8).module.state_dict()
    )
    describe_language_model(
        tmp_path, parts.encoder, parts.shape, parts.vocabulary, settings, parts.length
    )
    assert type(load_language_model(tmp_path, CPU).objective) is OBJECTIVES.get(name)


def edited(trained: Path, to: Path) -> Path:
    shutil.copytree(trained, to)
    return to / "stage1"


def test_what_is_missing_or_damaged_is_told(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no folder .*nowhere"):
        load_language_model(tmp_path / "nowhere", CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"contains no language model.*tasklm train"):
        load_language_model(tmp_path / "empty", CPU)
    for name, message in (
        ("config.json", "before language models"),
        ("model.safetensors", "is missing"),
        ("tokenizer.json", "no such"),
    ):
        (edited(trained, tmp_path / name) / name).unlink()
        with pytest.raises(RunError, match=message):
            load_language_model(tmp_path / name, CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 7}, "format 7, but this version reads 1"),
        ({"train": {"objective": "electric", "no_such_key": 1}}, "damaged.*no_such_key"),
        ({"shape": {}}, "damaged"),
        ({"objective": "mlm"}, "damaged"),
        ({"length": "long"}, "damaged"),
    ],
)
def test_a_changed_description_is_refused(
    trained: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = edited(trained, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    with pytest.raises(RunError, match=message):
        load_language_model(tmp_path / "run", CPU)


def test_weights_cut_off_are_refused(trained: Path, tmp_path: Path) -> None:
    path = edited(trained, tmp_path / "run") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RunError, match="damaged"):
        load_language_model(tmp_path / "run", CPU)


def test_the_folder_of_a_task_model_is_told_from_that_of_a_language_model(
    trained: Path, tmp_path: Path
) -> None:
    folder = edited(trained, tmp_path / "run")
    (folder / "config.json").write_text(json.dumps({"format": 2, "task": {}}), encoding="utf-8")
    with pytest.raises(RunError, match="contains only a task model"):
        load_language_model(folder, CPU)
