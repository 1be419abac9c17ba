"""Stage 1 that starts from the weights of another one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tasklm.errors import RecipeError, RunError
from tasklm.models.language_model import describe_language_model
from tasklm.models.weights import load_weights, save_weights
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Recipe, to_dict
from tasklm.recipe.toml import dump, load
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import joint_stage
from tasklm.train.start import starting_weights
from tasklm.train.started_recipes import started
from tests.train.test_every_objective import NAMES
from tests.train.test_loop import parts  # noqa: F401  (a fixture)


def trained(parts: TrainingContext, folder: Path, steps: int, **settings: Any) -> dict[str, Tensor]:
    """The weights of a stage 1, left in the folder."""
    folder.mkdir(parents=True)
    run_stage1(folder, parts, Train(**settings), Stage1Plan(steps, 1, 8, None), SILENT)
    return load_weights(folder / "model.safetensors")


@pytest.fixture(scope="module")
def first(parts: TrainingContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "first"
    trained(parts, run / "stage1", 4)
    return run


def of(part: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if name.startswith(f"{part}.")}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def test_no_steps_leave_the_weights_bit_for_bit(
    first: Path, parts: TrainingContext, tmp_path: Path
) -> None:
    before = load_weights(first / "stage1" / "model.safetensors")
    after = trained(parts, tmp_path / "stage1", 0, start=str(first), seed=5)
    assert equal(of("encoder", before), of("encoder", after)) and equal(
        of("objective", before), of("objective", after)
    )
    assert not equal(
        of("head", before), of("head", after)
    )  # the task may be another: its head is new
    scratch = trained(parts, tmp_path / "scratch", 0, seed=5)
    assert not equal(of("encoder", before), of("encoder", scratch)) and equal(
        of("head", scratch), of("head", after)
    )


def test_masked_language_modelling_goes_on_as_electra(
    first: Path, parts: TrainingContext, tmp_path: Path
) -> None:
    before = load_weights(first / "stage1" / "model.safetensors")
    at_once = trained(parts, tmp_path / "none", 0, start=str(first), objective="electra")
    drawn = {"objective": "electra", "embeddings": "random"}
    scratch = trained(parts, tmp_path / "scratch", 0, **drawn)
    assert equal(of("encoder", before), of("encoder", at_once)) and equal(
        of("objective", scratch), of("objective", at_once)
    )
    after = trained(parts, tmp_path / "some", 4, start=str(first), objective="electra")
    points = json.loads((tmp_path / "some" / "curve.json").read_text())
    assert (
        all(torch.tensor(list(point.values())).isfinite().all() for point in points)
        and "discriminator" in points[1]
    )
    assert all(bool(value.isfinite().all()) for value in after.values()) and not equal(
        of("encoder", before), of("encoder", after)
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_objective_goes_on_from_itself_and_from_another(
    parts: TrainingContext, tmp_path: Path, name: str
) -> None:
    before = joint_stage(parts, Train(objective=name, seed=3), 1, 8).module
    save_weights(tmp_path / "model.safetensors", before.state_dict())
    describe_language_model(
        tmp_path, parts.encoder, parts.shape, parts.vocabulary, Train(objective=name), parts.length
    )
    same = joint_stage(parts, Train(objective=name), 1, 8).module
    other = joint_stage(parts, Train(objective="mlm"), 1, 8).module
    drawn = {key: value.clone() for key, value in other.objective.state_dict().items()}
    said = starting_weights(tmp_path).put_into(same, name)
    assert "with its parts of" in said and equal(
        same.encoder.state_dict(), before.encoder.state_dict()
    )
    assert equal(same.objective.state_dict(), before.objective.state_dict())
    if name != "mlm":
        assert "are new" in starting_weights(tmp_path).put_into(other, "mlm")
        assert equal(other.encoder.state_dict(), before.encoder.state_dict()) and equal(
            other.objective.state_dict(), drawn
        )


def test_the_average_begins_at_the_start(
    first: Path, parts: TrainingContext, tmp_path: Path
) -> None:
    before = load_weights(first / "stage1" / "model.safetensors")
    assert equal(
        of("encoder", before),
        of("encoder", trained(parts, tmp_path / "stage1", 0, start=str(first), average=0.9)),
    )


def test_the_recipe_is_given_the_vocabulary_and_the_encoder(first: Path, tmp_path: Path) -> None:
    asked = Recipe().changed(train={"start": str(first)}, tokens={"length": 16})
    full = started(asked, tmp_path / "second")
    assert (full.tokens.kind, full.tokens.file) == (
        "file",
        str((first / "stage1" / "tokenizer.json").resolve()),
    )
    model = full.model
    assert (
        model.encoder,
        model.layers,
        model.width,
        model.heads,
        model.feedforward,
        model.embedding,
    ) == ("bert", 1, 32, 2, 64, 32)
    assert full.train.start == str((first / "stage1").resolve())
    assert to_dict(started(full, tmp_path / "third")) == to_dict(full)
    assert to_dict(
        started(asked.changed(train={"start": str(first / "stage1")}), tmp_path / "second")
    ) == to_dict(full)
    (tmp_path / "recipe.toml").write_text(dump(full), encoding="utf-8")
    assert to_dict(started(load(tmp_path / "recipe.toml"), tmp_path / "second")) == to_dict(full)
    assert started(Recipe(), tmp_path / "second") == Recipe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tokens": {"kind": "bpe"}},
            r"tokens.kind = 'bpe' needs a new vocabulary, but .*first.stage1 \(\d+ types\)",
        ),
        ({"tokens": {"lowercase": False}}, "tokens.lowercase = false needs a new"),
        ({"tokens": {"vocabulary": 5000}}, "tokens.vocabulary = 5000 needs a new"),
        (
            {"tokens": {"length": 33}},
            "tokens.length = 33: .* has 32 positions; set it to 32 or less",
        ),
        ({"model": {"encoder": "modern"}}, "model.encoder = 'modern', but train.start has 'bert'"),
        ({"model": {"width": 64}}, "model: width 64, but the encoder of train.start has width 32"),
        ({"model": {"embedding": 16}}, "embedding 16, but .* embedding 32"),
        (
            {"model": {"size": "small"}},
            r"layers 4, width 256, .*\(model.size = 'small'\), but .* layers 1, width 32",
        ),
    ],
)
def test_a_recipe_that_asks_for_something_else_is_told(
    first: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    asked = Recipe().changed(train={"start": str(first)}, tokens={"length": 32}).changed(**change)
    with pytest.raises(RecipeError, match=message):
        started(asked, tmp_path / "second")


def test_another_vocabulary_in_a_file_is_told_from_the_same_one(
    first: Path, tmp_path: Path
) -> None:
    asked = Recipe().changed(
        train={"start": str(first)},
        tokens={"length": 32, "kind": "file", "file": str(tmp_path / "tokenizer.json")},
    )
    vocabulary = Vocabulary.load(first / "stage1" / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text(
        vocabulary.tokenizer.to_str(pretty=True), encoding="utf-8"
    )
    assert started(asked, tmp_path / "second").tokens.kind == "file"
    vocabulary.tokenizer.add_tokens(["anotherword"])
    vocabulary.save(tmp_path / "tokenizer.json")
    with pytest.raises(RecipeError, match="is another vocabulary"):
        started(asked, tmp_path / "second")


def test_a_generator_of_another_width_is_told(parts: TrainingContext, tmp_path: Path) -> None:
    wide = dataclasses.replace(parts, shape=dataclasses.replace(parts.shape, width=256, heads=4))
    save_weights(
        tmp_path / "model.safetensors",
        joint_stage(wide, Train(objective="electra"), 1, 8).module.state_dict(),
    )
    describe_language_model(
        tmp_path, wide.encoder, wide.shape, wide.vocabulary, Train(objective="electra"), wide.length
    )
    asked = Recipe().changed(
        train={"start": str(tmp_path), "objective": "electra", "generator": 0.5},
        tokens={"length": 32},
    )
    with pytest.raises(RecipeError, match=r"train.generator = 0.5, but train.start has 0.25"):
        started(asked, tmp_path / "second")
    assert (
        started(asked.changed(train={"objective": "electra-15"}), tmp_path / "second").model.width
        == 256
    )


def test_encoders_that_compute_their_positions_may_read_longer_rows(
    parts: TrainingContext, tmp_path: Path
) -> None:
    rotary = dataclasses.replace(parts, encoder="modern")
    before = trained(rotary, tmp_path / "stage1", 0)
    full = started(
        Recipe().changed(train={"start": str(tmp_path)}, tokens={"length": 128}),
        tmp_path / "second",
    )
    assert full.model.encoder == "modern" and full.tokens.length == 128
    shape = starting_weights(tmp_path).shape_for(128)
    longer = dataclasses.replace(rotary, shape=shape, length=128)
    assert shape.positions == 128 and equal(
        before, trained(longer, tmp_path / "longer", 0, start=str(tmp_path))
    )


def test_what_cannot_be_started_from_is_told_before_anything_is_done(
    first: Path, tmp_path: Path
) -> None:
    def refused(where: Path, message: str) -> None:
        with pytest.raises((RunError, RecipeError), match=message):
            started(
                Recipe().changed(train={"start": str(where)}, tokens={"length": 32}),
                tmp_path / "second",
            )

    refused(tmp_path / "nowhere", r"there is no folder .*nowhere")
    refused(first / "stage1" / "model.safetensors", "is a file. Give the folder of a run")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "contains no language model")
    for name, content, message in (
        ("format", {"format": 7}, "format 7, but this version reads 1"),
        ("task", {"task": {}, "objective": None}, "damaged"),
        ("shape", {"shape": {}}, "damaged"),
    ):
        copy = Path(shutil.copytree(first, tmp_path / name)) / "stage1" / "config.json"
        copy.write_text(
            json.dumps({**json.loads(copy.read_text(encoding="utf-8")), **content}),
            encoding="utf-8",
        )
        refused(tmp_path / name, message)
    cut = Path(shutil.copytree(first, tmp_path / "cut")) / "stage1" / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    refused(tmp_path / "cut", "damaged")
    save_weights(
        cut,
        {
            name: value
            for name, value in load_weights(first / "stage1" / "model.safetensors").items()
            if "token" not in name
        },
    )
    refused(tmp_path / "cut", "damaged .*encoder.token.weight is missing")
    with pytest.raises(RecipeError, match=r"train\.start is this run itself"):
        started(Recipe().changed(train={"start": str(first)}, tokens={"length": 32}), first)


def test_other_weights_have_another_hash(first: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(first, tmp_path / "copy")) / "stage1" / "model.safetensors"
    assert starting_weights(tmp_path / "copy").digest() == starting_weights(first).digest()
    weights = load_weights(path)
    weights["encoder.token.weight"] = weights["encoder.token.weight"].clone()
    weights["encoder.token.weight"][0, 0] += 1
    save_weights(path, weights)
    assert starting_weights(tmp_path / "copy").digest() != starting_weights(first).digest()
