"""ONNX files: the same logits by onnxruntime, at any number of rows of any
length; what is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import as_onnx, export
from tasklm.export.onnx_graph import check_onnx, inputs_of, require_same, write_graph
from tasklm.export.onnx_model import OnnxModel, session_of
from tasklm.export.source import open_source
from tasklm.models.task_model import ModelDescription, save_models
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import LENGTH, examples, rows_of, saved


@pytest.fixture(scope="module")
def exported(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pairs, with shared layers, as ONNX."""
    folder = tmp_path_factory.mktemp("onnx")
    saved(folder / "model", vocabulary, encoder="albert", embedding=8)
    export(folder / "model", "onnx", folder / "out")
    return folder


def test_the_graph_takes_rows_of_any_number_and_length(exported: Path) -> None:
    session = session_of(exported / "out" / "model.onnx", 1)
    assert [(one.name, one.shape) for one in session.get_inputs()] == [
        (name, ["batch", "length"]) for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    assert [(one.name, one.shape) for one in session.get_outputs()] == [("logits", ["batch", 3])]
    found = json.loads((exported / "out" / "export.json").read_text(encoding="utf-8"))
    assert (
        found["weights"] == "fp32"
        and found["max_difference"] < 1e-4
        and found["task"]["labels"] == ["no", "yes – ja", "“maybe”"]
    )
    assert json.loads(session.get_modelmeta().custom_metadata_map["task"]) == found["task"]


def test_texts_and_pairs_get_our_logits(exported: Path) -> None:
    """From text on, with the tokenizer of the folder: padded and cut as our rows are."""
    source = open_source(exported / "model")
    session = session_of(exported / "out" / "model.onnx", 1)
    tokenizer = Tokenizer.from_file(str(exported / "out" / "tokenizer.json"))
    given = examples("classify")
    rows = tokenizer.encode_batch(
        [example.texts if len(example.texts) == 2 else example.text for example in given]
    )
    assert max(len(row.ids) for row in rows) == LENGTH and {len(row.ids) for row in rows} == {
        LENGTH
    }
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    found = session.run(
        ["logits"],
        {name: np.array([getattr(row, field) for row in rows]) for name, field in fields.items()},
    )[0]
    encoded = rows_of(source, given)
    ours = source.model(encoded.padded(np.arange(len(encoded))))[:, 0].detach()
    torch.testing.assert_close(torch.from_numpy(found), ours, atol=1e-4, rtol=0)
    alone = source.model(rows_of(source, given[4:5]).padded(np.arange(1)))[:, 0].detach()
    short = {
        name: np.array([getattr(rows[4], field)[: sum(rows[4].attention_mask)] for _ in "1"])
        for name, field in fields.items()
    }
    torch.testing.assert_close(
        torch.from_numpy(session.run(None, short)[0]), alone, atol=1e-4, rtol=0
    )  # one row, no padding


def test_local_layers_and_all_tokens_are_the_same(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Rows of 80 tokens are longer than what a local layer of ModernBERT sees to one side."""
    source = saved(tmp_path / "model", vocabulary, "tag", "modernbert", layers=2, length=80)
    path, inputs = tmp_path / "model.onnx", inputs_of(source)
    write_graph(source, path, inputs)
    assert require_same(source, path, inputs) < 1e-4
    encoded = rows_of(source)
    groups = np.arange(len(encoded))
    np.testing.assert_allclose(
        OnnxModel(path, inputs, 1).outputs_for(encoded.rows(groups)),
        source.model(encoded.padded(groups)).detach().numpy(),
        atol=1e-4,
        rtol=0,
    )
    with torch.no_grad():
        source.model.head.out.bias += 0.01
    with pytest.raises(RunError, match=r"differ by 0\.01"):  # the comparison can fail
        require_same(source, path, inputs)


def test_missing_packages_are_named(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "model", vocabulary)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RecipeError, match=r"pip install 'tasklm\[onnx\]'"):
        export(tmp_path / "model", "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists() and {path.name for path in tmp_path.iterdir()} == {
        "model"
    }


@pytest.mark.parametrize(("kind", "task"), [("span", {}), ("tag", {"crf": True})])
def test_answers_that_are_searched_for_are_refused(
    kind: str, task: dict[str, Any], vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "model", vocabulary, kind, **task)
    with pytest.raises(RecipeError, match=r"cannot be exported.*tasklm predict"):
        check_onnx(source)
    with pytest.raises(RecipeError, match=r"cannot be exported.*tasklm predict"):
        as_onnx(tmp_path / "model", tmp_path / "scratch")


def test_several_models_are_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = saved(tmp_path / "model", vocabulary)
    two = [source.model, source.model]
    save_models(
        tmp_path / "ensemble",
        ModelDescription("bert", source.shape, source.task, vocabulary, LENGTH),
        two,
        source.config["about"],
    )
    with pytest.raises(RecipeError, match=r"ensemble of 2 models"):
        as_onnx(tmp_path / "ensemble", tmp_path / "scratch")
    with pytest.raises(RunError, match=r"ensemble of 2 models"):
        export(tmp_path / "ensemble", "onnx", tmp_path / "out")


def test_segments_are_asked_for_where_there_may_be_pairs(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    both = ["input_ids", "attention_mask"]
    assert inputs_of(saved(tmp_path / "a", vocabulary)) == [*both, "token_type_ids"]
    assert inputs_of(saved(tmp_path / "b", vocabulary, "tag")) == both
    assert inputs_of(saved(tmp_path / "c", vocabulary, encoder="modern")) == both
    assert inputs_of(saved(tmp_path / "d", vocabulary, "choice")) == [*both, "token_type_ids"]
