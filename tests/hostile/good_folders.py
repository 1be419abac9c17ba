"""Good folders of models, exports and checkpoints, and what makes hostile ones of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.models.language_model import describe_language_model
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import Vocabulary
from tests.hostile.changes import Change
from tests.linear_models import fitted, write_linear
from tests.serve.models import LENGTH, random_model

FILES = ("config.json", "model.safetensors", "tokenizer.json")
FIRST = "encoder.token.weight"
HARMLESS = ("answered", "refused")


@dataclass(frozen=True)
class Hostile:
    """A good folder, what is done to it, and how a command that is given it may end."""

    name: str
    base: str  # name of the good folder
    change: Change
    ends: tuple[str, ...] = ("refused",)

    def make(self, bases: Path, to: Path) -> Path:
        """Makes the folder as a copy of the good one."""
        shutil.copytree(bases / self.base, to, symlinks=True)
        self.change(to)
        return to


def write_bases(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes the good folders: a model of every kind, an export, a language model, checkpoints."""
    for kind in ("classify", "multilabel", "regress", "choice", "tag", "span", "parse"):
        shutil.move(random_model(folder / "made" / kind, kind, vocabulary), folder / kind)
    shutil.rmtree(folder / "made")
    _write_linear(folder / "linear", vocabulary)
    write_onnx(folder / "onnx", vocabulary)
    _write_language_model(folder / "language model", vocabulary)
    for name in ("bert", "modern", "roberta", "albert"):
        _write_checkpoint(folder / f"{name} checkpoint", name, vocabulary)


def write_onnx(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes an export with a graph of three nodes: an encoder of ours would take seconds."""
    numbers = {
        "embedding": torch.randn(len(vocabulary), 8).numpy(),
        "matrix": torch.randn(8, 2).numpy(),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        helper.make_node("ReduceMax", ["embedded"], ["text"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["text", "matrix"], ["logits"]),
    ]
    inputs = ["input_ids", "attention_mask"]
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "length"])
        for name in inputs
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 2])
    weights = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
    graph = helper.make_graph(nodes, "text", given, [logits], weights)
    folder.mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        folder / "model.onnx",
    )
    task = {"kind": "classify", "labels": ["no", "yes"]}
    record = {"to": "onnx", "task": task, "inputs": inputs, "length": LENGTH, "columns": {}}
    (folder / "export.json").write_text(json.dumps(record), encoding="utf-8")
    vocabulary.save(folder / "tokenizer.json")


def _write_linear(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes a linear model of words alone, without checksums, which would refuse every change."""
    texts = {"no": "the dog likes water", "yes": "the cat sees music"}
    train = [Example((text,), label) for label, text in texts.items()] * 10
    task = Classify(sorted(texts))
    write_linear(folder, *fitted(task, train, train), vocabulary)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["files"], config["crc32"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _write_language_model(folder: Path, vocabulary: Vocabulary) -> None:
    shape, settings = Shape(len(vocabulary), 1, 32, 2, 64, LENGTH), Train()
    folder.mkdir()
    encoder = ENCODERS.get("bert")(shape)
    objective = OBJECTIVES.get("mlm")("bert", shape, vocabulary, settings)
    parts = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    parts |= {f"objective.{name}": tensor for name, tensor in objective.state_dict().items()}
    save_file(
        {name: tensor.clone() for name, tensor in parts.items()}, folder / "model.safetensors"
    )
    describe_language_model(folder, "bert", shape, vocabulary, settings, LENGTH)


def _write_checkpoint(folder: Path, name: str, vocabulary: Vocabulary) -> None:
    shape = Shape(len(vocabulary), 2, 32, 2, 64, LENGTH, embedding=16 if name == "albert" else 0)
    config, state = to_hugging_face(name, shape, ENCODERS.get(name)(shape).state_dict())
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    vocabulary.save(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def named(
    base: str, cases: dict[str, Change], ends: tuple[str, ...] = ("refused",)
) -> Iterator[Hostile]:
    """Folders that are a good one with one change each, by the names of the changes."""
    for name, change in cases.items():
        yield Hostile(f"{base}: {name}", base, change, ends)
