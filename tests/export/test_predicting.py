"""`Predictor` and `tasklm predict` on exported folders: threads, and what they say about folders
that they cannot take.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import DamagedError, RunError
from tasklm.export import onnx_model
from tasklm.export.exporting import export
from tasklm.recipe.schema import Hardware
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json, write_json
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import saved

ONE = Hardware(precision="fp32", threads=1)


@pytest.fixture(scope="module")
def folder(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and its export in 8 bits."""
    place = tmp_path_factory.mktemp("predicting")
    saved(place / "model", vocabulary, layers=1)
    export(place / "model", "onnx-int8", place / "small")
    return place


def test_predict_takes_an_export(folder: Path) -> None:
    said = [
        CliRunner().invoke(app, ["predict", str(folder / name), "a dog likes music"])
        for name in ("model", "small")
    ]
    assert [result.exit_code for result in said] == [0, 0], said
    ours, theirs = (json.loads(result.stdout) for result in said)
    assert (
        ours["text"] == theirs["text"]
        and ours["probabilities"].keys() == theirs["probabilities"].keys()
    )
    assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=0.1)
    assert theirs["probabilities"] != pytest.approx(
        ours["probabilities"], abs=1e-6
    )  # it is the one with 8 bits


def test_the_number_of_threads_is_the_hardwares(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, asked = torch.get_num_threads(), []
    opened = onnx_model.session_of
    monkeypatch.setattr(
        onnx_model,
        "session_of",
        lambda path, threads: asked.append(threads) or opened(path, threads),
    )
    try:
        predictor = Predictor(folder / "small", Hardware(threads=2))
    finally:
        torch.set_num_threads(before)
    answering: Any = predictor.answering
    session = answering.model.session
    assert asked == [2] and session.get_session_options().intra_op_num_threads == 2


def test_without_onnxruntime_the_remedy_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RunError, match=r"onnxruntime.*pip install 'tasklm\[onnx\]'"):
        Predictor(folder / "small", ONE)
    assert Predictor(folder / "model", ONE).answers(["a dog"])


def test_other_folders_are_named(folder: Path, tmp_path: Path) -> None:
    export(folder / "model", "hf", tmp_path / "hf")
    with pytest.raises(RunError, match=r"exported for transformers.*--to onnx"):
        Predictor(tmp_path / "hf", ONE)
    with pytest.raises(RunError, match="ONNX files run on the CPU"):
        Predictor(folder / "small", Hardware(device="cuda"))
    with pytest.raises(RunError, match="contains an ONNX file"):
        _ = Predictor(folder / "small", ONE).model
    shutil.copytree(folder / "small", tmp_path / "broken")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"none")
    with pytest.raises(
        DamagedError, match=r"model\.onnx is damaged .*Delete .*broken and export the model again"
    ):
        Predictor(tmp_path / "broken", ONE)
    record = read_json(tmp_path / "broken" / "export.json")
    del record["files"]  # as an earlier version wrote it
    write_json(tmp_path / "broken" / "export.json", record)
    with pytest.raises(RunError, match=r"cannot be read.*Export the model again"):
        Predictor(tmp_path / "broken", ONE)
    (tmp_path / "broken" / "export.json").write_text('{"to": "onnx"}', encoding="utf-8")
    with pytest.raises(DamagedError, match=r"damaged.*export the model again"):
        Predictor(tmp_path / "broken", ONE)


def test_one_flipped_bit_of_an_export_is_an_error_and_an_edited_card_is_not(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "small", tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("# Mine", encoding="utf-8")
    Predictor(tmp_path / "copy", ONE)
    for name in ("model.onnx", "tokenizer.json", "export.json"):
        path = tmp_path / "copy" / name
        content = path.read_bytes()
        path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
        with pytest.raises(DamagedError, match=rf"{name} is damaged .*export the model again"):
            Predictor(tmp_path / "copy", ONE)
        path.write_bytes(content)
