"""Networks that NumPy computes answer as PyTorch has them answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.errors import DamagedError, RecipeError, RunError
from tasklm.models.answering import kept_by
from tasklm.models.networks import Networks
from tasklm.models.numpy_encoders import ON_NUMPY
from tasklm.models.numpy_networks import NumpyNetworks, open_numpy
from tasklm.models.saved_model import read_saved_model
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    kept_of,
    load_models,
    new_encoder,
    save_models,
)
from tasklm.recipe.data_sections import Kind
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tokens.tokenizer import Vocabulary
from tests.linear_models import fitted
from tests.samples import reseal
from tests.tasks.wide_samples import labelled, task_of

KINDS = ("classify", "multilabel", "regress", "choice", "tag")
LENGTH = 64
WEIGHTS = "model.safetensors"


def write(
    folder: Path,
    task: Task,
    vocabulary: Vocabulary,
    encoder: str = "bert",
    wide: AnyWide | None = None,
    count: int = 1,
    **sizes: int,
) -> Path:
    """A model of large random weights, so that rounding is seen."""
    shape = Shape(
        len(vocabulary),
        **{"layers": 2, "width": 32, "heads": 4, "feedforward": 48, **sizes},
        positions=LENGTH,
    )
    models = []
    for seed in range(count):
        torch.manual_seed(seed)
        network = new_encoder(encoder, shape)
        head = task.head(shape.width, 0.0, network.normed_heads)
        model = TaskModel(network, head, wide is not None)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0.3 if parameter.dim() == 1 else 0.0, 0.2)
        models.append(model)
    described = ModelDescription(encoder, shape, task, vocabulary, LENGTH)
    save_models(folder, described, models, {"metric": task.metrics[0]}, wide)
    return folder


def outputs_of(folder: Path, kind: str) -> tuple[list[Any], list[Any]]:
    """The outputs for some examples by NumPy, and by PyTorch."""
    ours = open_numpy(read_saved_model(folder))
    assert ours is not None
    cpu = torch.device("cpu")
    encoded, task = ours.loaded.encoded(labelled(kind, 70, 2)), ours.loaded.task
    theirs = load_models(folder, cpu).models
    return (
        kept_by(ours.outputs, task, encoded, keep=np.asarray),
        kept_of(theirs, task, encoded, Machine(cpu, False, 1), keep=np.asarray),
    )


@pytest.mark.parametrize("embedding", [0, 24])
@pytest.mark.parametrize("encoder", list(ON_NUMPY))
@pytest.mark.parametrize("kind", KINDS)
def test_the_outputs_are_those_of_pytorch(
    kind: str, encoder: str, embedding: int, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    task = task_of(kind, labelled(kind, 40, 1))
    folder = write(tmp_path / "model", task, vocabulary, encoder, embedding=embedding)
    ours, theirs = outputs_of(folder, kind)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
    assert len({one.tobytes() for one in ours}) > 10  # they depend on the text


@pytest.mark.parametrize("kind", KINDS)
def test_the_wide_part_and_other_networks_count(
    kind: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    train = labelled(kind, 60, 1)
    task, wide = fitted(task_of(kind, train), train, train[:40])
    folder = write(tmp_path / "model", task, vocabulary, wide=wide, count=3)
    ours, theirs = outputs_of(folder, kind)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_pairs_and_marks_are_read(vocabulary: Vocabulary, tmp_path: Path) -> None:
    rows = labelled("classify", 60, 1)
    pairs = [replace(row, texts=(row.text, "the cold sea")) for row in rows]
    marked = [replace(row, texts=(f"[a] {row.text} [b] or not",)) for row in rows]
    for name, given, marks in (("pairs", pairs, ()), ("marks", marked, ("[a]", "[b]"))):
        task = TASKS.get("classify").from_examples(given, Kind(marks=marks))
        folder = write(tmp_path / name, task, vocabulary)
        few, many = Predictor(folder, few=True), Predictor(folder)
        assert isinstance(few.answering, NumpyNetworks) and isinstance(many.answering, Networks)
        for one, other in zip(few.answers(given), many.answers(given), strict=True):
            assert one["label"] == other["label"]
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_what_only_pytorch_can_answer_is_left_to_it(vocabulary: Vocabulary, tmp_path: Path) -> None:
    train = labelled("tag", 40, 1)
    crf = TASKS.get("tag").from_examples(train, Kind(crf=True))
    albert = write(tmp_path / "albert", task_of("tag", train), vocabulary, "albert", embedding=16)
    half = write(tmp_path / "half", task_of("tag", train), vocabulary)
    weights = {name: tensor.half() for name, tensor in load_file(half / WEIGHTS).items()}
    save_file(weights, half / WEIGHTS)
    reseal(half)
    for folder in (write(tmp_path / "crf", crf, vocabulary), albert, half):
        assert open_numpy(read_saved_model(folder)) is None
        assert isinstance(Predictor(folder, few=True).answering, Networks)


Change = Callable[[dict[str, torch.Tensor]], object]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda weights: weights.pop("head.out.bias"), "head.out.bias is missing"),
        (lambda weights: weights.update(more=torch.ones(2)), "more is unknown"),
        (
            lambda weights: weights.update({"head.out.bias": torch.ones(9)}),
            r"head.out.bias has shape \(9,\), not \(3,\)",
        ),
        (
            lambda weights: weights["encoder.layers.1.up.weight"][0].fill_(torch.nan),
            "encoder.layers.1.up.weight in model.safetensors has numbers that are not finite",
        ),
    ],
)
def test_damaged_weights_are_refused_in_the_same_words(
    change: Change, problem: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    task = task_of("classify", labelled("classify", 40, 1))
    folder = write(tmp_path / "model", task, vocabulary)
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS)
    reseal(folder)
    for few in (True, False):
        with pytest.raises(DamagedError, match=problem):
            Predictor(folder, few=few)


def test_heads_of_an_odd_width_are_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    task = task_of("classify", labelled("classify", 40, 1))
    folder = write(tmp_path / "model", task, vocabulary, "modern", width=36, heads=2)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["shape"]["heads"] = 4
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    reseal(folder)
    for few in (True, False):
        with pytest.raises(DamagedError, match="is odd"):
            Predictor(folder, few=few)


@pytest.mark.filterwarnings("error")
def test_outputs_that_are_not_finite_are_refused_without_warnings(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    task = task_of("classify", labelled("classify", 40, 1))
    folder = write(tmp_path / "model", task, vocabulary)
    weights = load_file(folder / WEIGHTS)
    save_file({name: 1e38 * tensor for name, tensor in weights.items()}, folder / WEIGHTS)
    reseal(folder)
    with pytest.raises(RunError, match="are not finite"):
        Predictor(folder, few=True).answers(["a text"])


def test_there_is_one_task(vocabulary: Vocabulary, tmp_path: Path) -> None:
    task = task_of("classify", labelled("classify", 40, 1))
    predictor = Predictor(write(tmp_path / "model", task, vocabulary), few=True)
    with pytest.raises(RecipeError, match="one task"):
        predictor.of("nothing")
    assert isinstance(predictor.model, TaskModel)  # who looks into the network gets PyTorch's
