"""Models whose head reads at marks as ONNX: the graph takes the marks' places, and answers as the
model does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.export.exporting import export
from tasklm.export.onnx_model import session_of
from tasklm.recipe.data_sections import Data
from tasklm.serve.engines import open_engine
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.export.samples import ran, rows_of, saved

MARKS = ["<<", "[["]
LONG = " ".join(sentences(12, 5))
TEXTS = [
    "the << cat >> likes the [[ red ball ]]",
    "[[ water ]] and the << cat >>",
    "no mark",
    "",
    f"<< a dog >> {LONG} [[ music ]]",
]
PAIRS = [
    ("a dog likes", "the << cat >> and [[ music ]]"),
    ("the [[ cat ]]", "[[ music ]] << water >>"),
    ("a dog", f"{LONG} << music >>"),
]
GIVEN: list[Any] = [*TEXTS, *PAIRS]


@pytest.fixture(scope="module")
def folder(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with two marks, and its export."""
    place = tmp_path_factory.mktemp("marks")
    saved(place / "model", vocabulary, layers=1, marks=MARKS)
    export(place / "model", "onnx", place / "out")
    return place


def logits_of(folder: Path, vocabulary: Vocabulary) -> tuple[np.ndarray, list[list[int]]]:
    """The logits of the model in PyTorch, and the places it reads."""
    source = saved(folder / "again", vocabulary, layers=1, marks=MARKS)
    encoded = rows_of(
        source, [Example((one,) if isinstance(one, str) else one, None) for one in GIVEN]
    )
    batch = encoded.padded(np.arange(len(encoded)))
    return source.model(batch)[:, 0].detach().numpy(), [unit.places for unit in encoded.units]


def test_the_code_of_the_card_finds_the_places_and_gets_our_logits(
    folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    found = ran(folder / "out")
    assert (
        found["logits"].shape == (2, 3)
        and found["places"][0][1] == 1 < found["places"][0][2]
        and found["places"][1] == [0, 0, 0]
    )
    rows = Tokenizer.from_file(str(folder / "out" / "tokenizer.json")).encode_batch(GIVEN)
    asked = [(one,) if isinstance(one, str) else one for one in GIVEN]
    places = [
        [0, *(found["place"](mark, row, *texts) for mark in MARKS)]
        for row, texts in zip(rows, asked, strict=True)
    ]
    wanted, ours = logits_of(tmp_path, vocabulary)
    assert places == ours
    assert (
        places[2] == places[3] == [0, 0, 0] and places[4] == [0, 1, 0] and places[-1] == [0, 0, 0]
    )  # without, empty, cut off
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    given = {
        name: np.array([getattr(row, field) for row in rows]) for name, field in fields.items()
    }
    session = session_of(folder / "out" / "model.onnx", 1)
    np.testing.assert_allclose(
        session.run(None, {**given, "places": np.array(places)})[0], wanted, atol=1e-4
    )
    passed_by = session.run(None, {**given, "places": np.zeros_like(places)})[0]
    assert [bool(apart > 1e-3) for apart in abs(passed_by - wanted).max(1)] == [
        any(row) for row in places
    ]


def test_the_inputs_are_those_of_the_record_and_the_card_tells_of_places(folder: Path) -> None:
    session = session_of(folder / "out" / "model.onnx", 1)
    shapes = {one.name: one.shape for one in session.get_inputs()}
    tokens = {
        name: ["batch", "length"] for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    assert shapes == {**tokens, "places": ["batch", 3]} and session.get_outputs()[0].shape == [
        "batch",
        3,
    ]
    assert json.loads((folder / "out" / "export.json").read_text(encoding="utf-8"))[
        "inputs"
    ] == list(shapes)
    card = (folder / "out" / "README.md").read_text(encoding="utf-8")
    assert "`places` (rows, 3)" in card and "the markers `<<` and `[[` begin" in card


def test_the_service_answers_the_same(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """With local layers, no segments, and as many marks as can be: some rows have fewer tokens."""
    saved(tmp_path / "model", vocabulary, encoder="modern", length=80, marks=[*MARKS, *"abcde"])
    engines = [
        open_engine(tmp_path / "model", asked, 1, Data(), tmp_path / "scratch")
        for asked in ("torch", "onnx")
    ]
    ours, theirs = (engine.predictor.answers(GIVEN) for engine in engines)
    assert [engine.name for engine in engines] == ["torch", "onnx"]
    assert engines[1].predictor.loaded.config["inputs"] == ["input_ids", "attention_mask", "places"]
    assert [one["label"] for one in ours] == [one["label"] for one in theirs] and len(
        {one["label"] for one in ours}
    ) > 1
    alone = [engines[1].predictor.answers([one])[0] for one in GIVEN]
    for one, other, by_itself in zip(ours, theirs, alone, strict=True):
        assert other["probabilities"] == pytest.approx(one["probabilities"], abs=1e-4)
        assert by_itself["probabilities"] == pytest.approx(one["probabilities"], abs=1e-4)


def test_weights_of_8_bits_answer_much_the_same(folder: Path, tmp_path: Path) -> None:
    out, runner = tmp_path / "out", CliRunner()
    said = runner.invoke(
        app,
        [
            "export",
            str(folder / "model"),
            "--to",
            "onnx-int8",
            "--max-mb",
            "0.12",
            "--out",
            str(out),
            "--json",
        ],
    )
    assert said.exit_code == 0, said.output
    assert (
        json.loads(said.stdout)["weights"] == "int8"
        and json.loads(said.stdout)["megabytes"] <= 0.12
    )
    asked = [
        json.loads(runner.invoke(app, ["predict", str(one), TEXTS[0]]).stdout)
        for one in (folder / "model", out)
    ]
    assert asked[1]["probabilities"] == pytest.approx(asked[0]["probabilities"], abs=0.1)
    assert asked[1]["probabilities"] != pytest.approx(asked[0]["probabilities"], abs=1e-6)
