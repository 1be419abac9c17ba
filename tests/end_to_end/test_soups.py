"""The mean of the weights of all seeds: its row, and when it is the model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasklm import TaskLM
from tasklm.evaluate.scores import Row, Scores, Spread
from tasklm.models.weights import mean_weights
from tasklm.pipeline import flow, soups
from tasklm.pipeline.flow import fit
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stages import finetune_stage
from tests.end_to_end.conftest import options
from tests.train.test_loop import parts  # noqa: F401

SMALL = {
    "train__steps": "15",
    "train__seeds": "2",
    "finetune__epochs": "3",
    "finetune__seeds": "2",
    "finetune__soup": "true",
    "evaluate__bootstrap": "100",
    "evaluate__baselines": "false",
    "evaluate__ensemble": "true",
}


pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


def recipe_of(files: Path, **changes: str) -> Recipe:
    return load(None, options(files, **{**SMALL, **changes}))


@pytest.fixture(scope="module")
def done(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    folder = tmp_path_factory.mktemp("soups") / "run"
    scores = fit(recipe_of(files), folder, SILENT)
    assert scores is not None
    return folder, scores


def weights_of(folder: Path, training: str) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / training / f"seed-{seed}" / "best.safetensors") for seed in (1, 2)]


def test_means_by_hand() -> None:
    one = {"a": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}
    other = {"a": torch.tensor([2.0, 6.0]), "n": torch.tensor(3)}
    mean = mean_weights([one, other, other])
    assert torch.equal(mean["a"], torch.tensor([5 / 3, 14 / 3])) and mean["n"] == 3
    assert mean_weights([one]) is one


def test_there_is_a_row_with_a_value_for_each_training(done: tuple[Path, Scores]) -> None:
    _, scores = done
    rows = {row.kind: row for row in scores.rows}
    soup, ours, ensemble = rows["soup"], rows["ours"], rows["ensemble"]
    assert soup.name == "mean weights of 2 seeds"
    assert soup.dev is not None and len(soup.dev.values) == 2
    assert soup.parameters == ours.parameters
    assert ours.flops_exact < soup.flops_exact < ensemble.flops_exact
    assert scores.averaged == soups.is_better(soup, ours)


def test_its_answers_are_those_of_the_mean_weights(
    done: tuple[Path, Scores], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shipped, whatever its score, to ask the folder model/ itself."""
    folder, scores = done
    monkeypatch.setattr(flow, "is_better", lambda soup, own: True)
    again = fit(recipe_of(files), folder, SILENT)
    assert again is not None and again.averaged
    assert again.verdict.startswith("The model has the mean weights of its seeds")
    row = next(row for row in again.rows if row.kind == "soup")
    assert row.dev is not None and row.test is not None
    place = row.dev.values.index(max(row.dev.values))
    about = read_json(folder / "model" / "config.json")["about"]
    assert about["stage1"] == place + 1 and about["averaged"] == [1, 2]
    assert about["dev"] == row.dev.values[place] and about["test"]["mean"] == row.test.mean
    shipped = load_file(folder / "model" / "model.safetensors")
    expected = mean_weights(weights_of(folder, ("stage2", "stage2-2")[place]))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in shipped.items())
    texts = [json.loads(line)["text"] for line in (files / "dev.jsonl").read_text().splitlines()]
    predicted = TaskLM.load(folder / "model").predict(texts)
    saved = read_json(folder / "soup-predictions" / f"dev-{place + 1}.json")
    assert list(predicted) == [answer["label"] for answer in saved]
    monkeypatch.undo()
    back = fit(recipe_of(files), folder, SILENT)
    assert back is not None and back.averaged == scores.averaged


@pytest.mark.parametrize("soup", [True, False])
def test_seeds_of_a_training_begin_with_one_head(parts: TrainingContext, soup: bool) -> None:
    heads = []
    for seed in (1001, 1100, 1101):
        stage = finetune_stage(parts, Finetune(soup=soup), seed, "accuracy", None)
        weights = stage.model.head.state_dict().values()
        heads.append(torch.cat([tensor.flatten() for tensor in weights]))
    assert torch.equal(heads[0], heads[1]) == soup
    assert not torch.equal(heads[0], heads[2])  # of another training


def test_only_better_ones_ship() -> None:
    def row(*values: float) -> Row:
        whole = Row.__new__(Row)
        object.__setattr__(whole, "dev", Spread(sum(values) / len(values), 0.0, list(values)))
        return whole

    assert soups.is_better(row(0.7, 0.81), row(0.5, 0.8, 0.6))
    assert not soups.is_better(row(0.8), row(0.5, 0.8))


def test_one_seed_has_no_mean(files: Path, tmp_path: Path) -> None:
    scores = fit(recipe_of(files, train__seeds="1", finetune__seeds="1"), tmp_path / "run", SILENT)
    assert scores is not None and not scores.averaged
    assert [row.kind for row in scores.rows] == ["ours"]


def test_the_default_changes_no_key(files: Path) -> None:
    plain = recipe_of(files, finetune__soup="false").finetune
    assert "soup" not in values_for_key(plain)
    assert values_for_key(dataclasses.replace(plain, soup=True))["soup"] is True
