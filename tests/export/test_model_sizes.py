"""Weights of 8 bits: how close they are, what they cost on dev, and which are taken where a file
may have a size.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasklm.errors import RecipeError
from tasklm.export import model_sizes
from tasklm.export.card import write_card
from tasklm.export.exporting import export, steps_of
from tasklm.export.model_sizes import STEPS, DevScores, Sized, fitting, quantise
from tasklm.export.onnx_graph import inputs_of
from tasklm.export.onnx_model import OnnxModel
from tasklm.export.record import Exported
from tasklm.export.source import Source
from tasklm.storage.files import read_json
from tasklm.tasks.examples import Example
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import labelled
from tests.export.samples import rows_of, saved


@pytest.fixture(scope="module")
def exact(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, Path]:
    """A model and its ONNX file in fp32."""
    folder = tmp_path_factory.mktemp("sizes")
    source = saved(folder / "model", vocabulary, labels=["no", "yes"])
    export(folder / "model", "onnx", folder / "out")
    return source, folder / "out" / "model.onnx"


def test_weights_of_eight_bits_are_close(exact: tuple[Source, Path], tmp_path: Path) -> None:
    source, graph = exact
    rows = rows_of(source).rows(np.arange(10))
    ours, apart = source.model(TokenBatch.of(rows)).detach().numpy(), {}
    for step in STEPS.keys() - {"fp32"}:
        quantise(graph, tmp_path / "small.onnx", step)
        theirs = OnnxModel(tmp_path / "small.onnx", inputs_of(source), 1).outputs_for(rows)
        apart[step] = float(np.abs(ours - theirs).max())
        assert 1e-6 < apart[step] < 0.25 * float(ours.std())  # rounded, and not more than that
    assert len(set(apart.values())) == 3


def test_what_fits_is_taken(exact: tuple[Source, Path], tmp_path: Path) -> None:
    source, graph = exact
    here, inputs, steps = tmp_path / "exact.onnx", inputs_of(source), list(STEPS)
    here.write_bytes(graph.read_bytes())
    alone = {step: fitting(source, here, 1e-7, inputs, [step], None) for step in steps}
    size = {step: sized.megabytes for step, (_, sized) in alone.items()}
    assert (
        size["fp32"] > max(size["int8-embeddings"], size["int8-matrices"])
        and min(size, key=lambda step: size[step]) == "int8"
    )
    assert all(
        path.stat().st_size / 1e6 == sized.megabytes and sized.step == step
        for step, (path, sized) in alone.items()
    )
    assert fitting(source, here, 1e-7, inputs, steps, size["fp32"]) == (
        here,
        Sized("fp32", size["fp32"], 1e-7, None),
    )
    path, sized = fitting(
        source, here, 1e-7, inputs, steps, size["fp32"] - 1e-6
    )  # without dev, how far logits are apart decides
    assert (
        sized
        == min(
            (one for step, (_, one) in alone.items() if step != "fp32"), key=lambda one: one.apart
        )
        and path.exists()
    )
    assert fitting(source, here, 1e-7, inputs, steps, size["int8"])[1].step == "int8"
    with pytest.raises(RecipeError, match=rf"the smallest file, int8, has {size['int8']:.2f} MB"):
        fitting(source, here, 1e-7, inputs, steps, size["int8"] - 0.001)


def test_the_least_loss_on_dev_is_taken(
    exact: tuple[Source, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, graph = exact
    here, inputs = tmp_path / "exact.onnx", inputs_of(source)
    here.write_bytes(graph.read_bytes())
    dev = [Example((str(row["text"]),), row["label"]) for row in labelled(20, 3)]
    lost = {"int8-embeddings": 0.02, "int8-matrices": -0.01, "int8": 0.0}  # a gain is chance
    monkeypatch.setattr(Source, "dev", lambda self: dev)
    monkeypatch.setattr(DevScores, "beside", lambda self, path, inputs: {"loss": lost[path.stem]})
    far = {"int8-embeddings": 0.1, "int8-matrices": 0.3, "int8": 0.2}
    monkeypatch.setattr(
        model_sizes, "difference", lambda source, path, inputs: (far[path.stem], 1.0)
    )
    assert fitting(source, here, 1e-7, inputs, steps_of("onnx-int8", 9.0), 9.0)[1] == Sized(
        "int8", (tmp_path / "int8.onnx").stat().st_size / 1e6, 0.2, {"loss": 0.0}
    )


def test_which_weights_a_format_has() -> None:
    assert steps_of("onnx", None) == ["fp32"] and steps_of("onnx-int8", None) == ["int8"]
    assert steps_of("onnx", 3.0) == list(STEPS) and steps_of("onnx-int8", 3.0) == [
        "int8-embeddings",
        "int8-matrices",
        "int8",
    ]


def test_the_card_says_what_was_not_measured(exact: tuple[Source, Path], tmp_path: Path) -> None:
    """A model by itself has no dev examples; only rounded matrices round what meets them."""
    source, graph = exact
    written = read_json(graph.with_name("export.json"))
    record = Exported(**{name: value for name, value in written.items() if name != "files"})
    cards = {}
    for step in STEPS:
        write_card(source, replace(record, to="onnx-int8", weights=step), tmp_path)
        cards[step] = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert source.dev() is None and {
        step for step, card in cards.items() if "was **not measured**" in card
    } == STEPS.keys() - {"fp32"}
    assert {
        step for step, card in cards.items() if "depend slightly on the other rows" in card
    } == {"int8-matrices", "int8"}
