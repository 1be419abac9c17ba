"""Models of several tasks for other programs: each task as a model of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RecipeError
from tasklm.export.exporting import export, export_each
from tasklm.export.publishing import without_paths
from tasklm.export.source import open_source
from tasklm.recipe.schema import Hardware
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.export.samples import saved
from tests.serve.models import need_onnx
from tests.several_models import KINDS, several_run

ONE = Hardware(device="cpu", precision="fp32", threads=1)
TEXTS_ONLY = ("classify", "multilabel", "regress")
TEXTS = sentences(3, 4)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    return several_run(tmp_path_factory.mktemp("several") / "many", vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_an_onnx_export_of_a_task_answers_as_the_task(run: Path, tmp_path: Path, kind: str) -> None:
    need_onnx()
    exported, folder = export(run, "onnx", tmp_path / "out", task=kind)
    assert exported.task["kind"] == kind and exported.name == f"many-{kind}"
    assert exported.wide is not None and exported.network is not None
    ours = Predictor(run / "model", ONE).of(kind).answers(TEXTS)
    assert Predictor(folder, ONE).answers(TEXTS) == [rounded(answer) for answer in ours]
    with pytest.raises(RecipeError, match="one task"):
        Predictor(folder, ONE).of(kind)


@pytest.mark.parametrize("encoder", ["bert", "albert", "modern"])
def test_transformers_computes_the_logits_of_a_task(
    vocabulary: Vocabulary, tmp_path: Path, encoder: str
) -> None:
    transformers = pytest.importorskip("transformers")
    kinds = KINDS if encoder == "modern" else ("classify", "regress")
    embedding = 16 if encoder == "albert" else 0
    folder = several_run(
        tmp_path / "many", vocabulary, kinds, encoder=encoder, wide=False, embedding=embedding
    )
    for exported, place in export_each(folder, "hf", tmp_path / "out"):
        model = getattr(transformers, exported.loads_with).from_pretrained(place).eval()
        source = open_source(folder).of(place.name)
        encoded = source.loaded.encoded([source.task.example_of(text) for text in TEXTS])
        for number, unit in enumerate(encoded.units):
            with torch.no_grad():
                theirs = model(input_ids=torch.tensor([unit.tokens])).logits
                ours = source.model(encoded.padded(np.array([number])))
            read = theirs[:, unit.places] if theirs.dim() == 3 else theirs[:, None]
            np.testing.assert_allclose(ours.numpy(), read.numpy(), atol=1e-4)


def test_tags_of_several_have_no_class_in_transformers(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"hidden layer.*'bert'\. Export it with --to onnx"):
        export(run, "hf", tmp_path / "out", task="tag")
    with pytest.raises(RecipeError, match=r"tag: --to hf: .*--task NAME exports one of the others"):
        export_each(run, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export(run, "hf", tmp_path / "out", task="classify")[1].is_dir()


def test_the_card_states_what_is_left_out_and_no_paths(run: Path, tmp_path: Path) -> None:
    _, folder = export(run, "hf", tmp_path / "out", task="classify")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "which are left out here: `multilabel`, `regress`, `tag`." in card
    assert "These are the logits of the network alone" in card
    assert "task `classify` from `classify`, trained together with" in card
    assert "The model was picked by the mean over 4 tasks on dev, 50.0." in card
    assert "only for this task, not for those" in card and str(run.parent) not in card
    recipe = load(run / "recipe.toml")
    assert without_paths(recipe).several.tasks == KINDS
    named = recipe.changed(
        several={"tasks": ["a=/x/b.csv", "/y/c"]}, distill={"teachers": ["/x/runs/one"]}
    )
    assert without_paths(named).several.tasks == ("a=b.csv", "c")
    assert without_paths(named).distill.teachers == ("one",)


def test_names_are_checked(run: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    for name in ("", "nothing"):
        with pytest.raises(RecipeError, match="name one of: classify, multilabel, regress, tag"):
            export(run, "hf", tmp_path / "out", task=name)
    saved(tmp_path / "one", vocabulary)
    with pytest.raises(RecipeError, match="the model has one task, of kind classify"):
        export(tmp_path / "one", "hf", tmp_path / "out", task="classify")


def test_the_command_line_names_the_task_and_says_what_was_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["export", str(run), "--to", "hf", "--task", "regress"])
    assert done.exit_code == 0 and "exports/many-regress-hf" in done.output
    assert Path("exports/many-regress-hf/config.json").is_file()
    texts = several_run(tmp_path / "texts", vocabulary, TEXTS_ONLY, wide=False)
    done = CliRunner().invoke(app, ["export", str(texts), "--to", "hf", "--json"])
    assert done.exit_code == 0, done.exception
    folders = [Path(one["folder"]) for one in json.loads(done.output)]
    assert folders == [Path("exports/texts-hf") / kind for kind in TEXTS_ONLY]
