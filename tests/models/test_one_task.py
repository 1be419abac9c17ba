"""One of several tasks as a model of its own: the same outputs as among the others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError, RunError
from tasklm.models.one_task import alone
from tasklm.models.task_model import LoadedModels, answers_of, kept_of, load_models
from tasklm.recipe.toml import load
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.several import read_several
from tasklm.tasks.several import member_of
from tasklm.tokens.tokenizer import Vocabulary
from tests.samples import reseal
from tests.serve.models import random_model
from tests.several_models import KINDS, several_run

CPU = torch.device("cpu")
MACHINE = Machine(CPU, False, 1)


def dev_of(run: Path) -> list[Example]:
    return read_several(load(run / "recipe.toml")).splits.dev


def outputs_of(loaded: LoadedModels, examples: list[Example]) -> list[Any]:
    encoded = loaded.encoded(examples)
    return kept_of(loaded.models, loaded.task, encoded, MACHINE, keep=np.copy)


@pytest.mark.parametrize(
    ("encoder", "wide", "models"),
    [("bert", True, 1), ("modern", True, 1), ("albert", False, 1), ("bert", True, 2)],
)
def test_a_task_alone_has_the_outputs_that_it_has_among_the_others(
    tmp_path: Path, vocabulary: Vocabulary, encoder: str, wide: bool, models: int
) -> None:
    run = several_run(tmp_path, vocabulary, encoder=encoder, wide=wide, models=models)
    loaded, dev = load_models(run / "model", CPU), dev_of(run)
    assert wide == isinstance(loaded.wide, WideParts)
    for kind in KINDS:
        member, own = member_of(loaded.task, kind), alone(loaded, kind)
        joined = [example for example in dev if example.task == kind]
        among = outputs_of(loaded, joined)
        by_itself = outputs_of(own, member.own(dev))
        assert len(among) == len(by_itself) > 0
        for ours, theirs in zip(by_itself, among, strict=True):
            np.testing.assert_allclose(ours, theirs[..., member.columns], atol=1e-6)
        answers = answers_of(own.models, own.task, own.encoded(member.own(dev)), MACHINE)
        together = answers_of(loaded.models, loaded.task, loaded.encoded(joined), MACHINE)
        assert [{"task", *answer} for answer in answers] == [set(answer) for answer in together]


def test_the_encoder_is_shared_and_the_description_is_that_of_the_task(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    loaded = load_models(several_run(tmp_path, vocabulary) / "model", CPU)
    own = alone(loaded, "regress")
    assert own.model.encoder is loaded.model.encoder
    assert own.model.wide_scale is loaded.model.wide_scale is not None
    assert own.config["task"]["kind"] == own.task.kind == "regress"
    assert own.config["about"]["metric"] == "spearman"
    assert loaded.config["about"]["metric"] == "mean"
    assert own.wide is loaded.wide.parts["regress"]  # type: ignore[union-attr]


def test_a_task_without_a_wide_part_has_none_alone(tmp_path: Path, vocabulary: Vocabulary) -> None:
    run = several_run(tmp_path, vocabulary, ("classify", "regress"))
    loaded = load_models(run / "model", CPU)
    assert isinstance(loaded.wide, WideParts)
    bare = WideParts({**loaded.wide.parts, "classify": None}, loaded.wide.columns)
    own = alone(dataclasses.replace(loaded, wide=bare), "classify")
    assert own.wide is None and own.model.wide_scale is None


@pytest.mark.parametrize("name", ["", "nothing", "all"])
def test_a_name_that_no_task_has_is_refused_with_the_names(
    tmp_path: Path, vocabulary: Vocabulary, name: str
) -> None:
    loaded = load_models(several_run(tmp_path, vocabulary, wide=False) / "model", CPU)
    with pytest.raises(RecipeError, match="name one of: classify, multilabel, regress, tag"):
        alone(loaded, name)


def test_a_model_of_one_task_says_that_it_has_one(tmp_path: Path, vocabulary: Vocabulary) -> None:
    loaded = load_models(random_model(tmp_path / "a", "classify", vocabulary), CPU)
    with pytest.raises(RecipeError, match="'rte': the model has one task, of kind classify"):
        alone(loaded, "rte")


@pytest.mark.parametrize("name", ["..", "../elsewhere", "all", "", "a/b"])
def test_a_folder_whose_tasks_have_names_that_lead_elsewhere_is_refused(
    tmp_path: Path, vocabulary: Vocabulary, name: str
) -> None:
    model = several_run(tmp_path, vocabulary, wide=False) / "model"
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["task"]["tasks"][0]["name"] = name
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    reseal(model)
    with pytest.raises(RunError, match="cannot have this name"):
        load_models(model, CPU)


def test_a_wide_part_of_other_tasks_is_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    model = several_run(tmp_path, vocabulary) / "model"
    about = json.loads((model / "wide" / "wide.json").read_text(encoding="utf-8"))
    about["tasks"][0]["name"] = "another"
    (model / "wide" / "wide.json").write_text(json.dumps(about), encoding="utf-8")
    reseal(model)
    with pytest.raises(RunError, match="does not have the tasks of the model"):
        load_models(model, CPU)
