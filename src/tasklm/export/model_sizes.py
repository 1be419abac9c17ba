"""Smaller ONNX files: 8-bit weights, and the best file within a size limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.export.onnx_graph import difference, library, without_chatter
from tasklm.export.onnx_model import OnnxModel, outputs_of
from tasklm.export.source import Source
from tasklm.models.task_model import TaskModel, kept_of
from tasklm.tasks.base import score
from tasklm.tasks.examples import Example
from tasklm.tasks.members import places_of
from tasklm.tasks.several import members_of

STEPS: dict[str, tuple[str, ...]] = {  # which weights have 8 bits → the operators that read them
    "fp32": (),
    "int8-embeddings": ("Gather",),
    "int8-matrices": ("MatMul", "Gemm"),
    "int8": ("MatMul", "Gemm", "Gather"),
}
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Sized:
    """An ONNX file, and the loss caused by its weights."""

    step: str
    megabytes: float
    apart: float  # largest difference of logits to the model's, on random rows
    # scores on dev of the model and of the file; None where nothing was rounded, or dev is missing
    dev: dict[str, Any] | None

    @property
    def loss(self) -> tuple[float, float]:
        """The loss of score on dev (a gain is chance), then how far logits are apart."""
        if self.dev is None:
            return 0.0, self.apart
        return max(0.0, float(self.dev["loss"])), self.apart


def quantise(exact: Path, path: Path, step: str) -> None:
    """Writes a model with 8-bit weights; activations are rounded by their own range. The fast
    kernels need signed weights. They use 7 of their 8 bits, with a scale for each column of a
    matrix: on x86 CPUs without VNNI two products are summed in 16 bits, which would overflow, and
    the score measured here would not apply there.
    """
    quantisation = library("onnxruntime.quantization")
    with without_chatter():
        quantisation.quantize_dynamic(
            str(exact),
            str(path),
            op_types_to_quantize=list(STEPS[step]),
            per_channel=True,
            reduce_range=True,
            weight_type=quantisation.QuantType.QInt8,
        )


def fitting(
    source: Source,
    exact: Path,
    apart: float,
    inputs: Sequence[str],
    steps: Sequence[str],
    most: float | None,
) -> tuple[Path, Sized]:
    """The file that loses least among those of some steps with at most `most` megabytes.

    `exact` is the model in fp32, whose logits are `apart` from PyTorch's; the files are written
    beside it. If fp32 is among them it loses nothing, and no other is measured.
    """
    sizes: dict[str, float] = {}
    for step in steps:
        path = _file(exact, step)
        if step != "fp32":
            quantise(exact, path, step)
        sizes[step] = path.stat().st_size / MEGABYTE
        if step == "fp32" and (most is None or sizes[step] <= most):
            return path, Sized(step, sizes[step], apart, None)
    fit = [step for step in steps if most is None or sizes[step] <= most]
    if not fit:
        smallest = min(sizes, key=lambda step: sizes[step])
        problem = f"--max-mb {most:g}: the smallest file, {smallest}, has {sizes[smallest]:.2f} MB"
        smaller = "train a smaller model (model.size, tokens.vocabulary)"
        raise RecipeError([f"{problem}; allow that much, or {smaller}"])
    examples = source.dev()
    dev = DevScores(source, examples) if examples else None
    candidates = []
    for step in fit:
        path = _file(exact, step)
        cost = None if dev is None else dev.beside(path, inputs)
        candidates.append(Sized(step, sizes[step], difference(source, path, inputs)[0], cost))
    best = min(candidates, key=lambda candidate: candidate.loss)
    return _file(exact, best.step), best


def _file(exact: Path, step: str) -> Path:
    if step == "fp32":
        return exact
    return exact.with_name(f"{step}.onnx")


class DevScores:
    """Scores on the dev examples of the run."""

    def __init__(self, source: Source, dev: Sequence[Example]) -> None:
        self.source, self.gold = source, [example.label for example in dev]
        self.encoded = source.loaded.encoded(dev)
        self.machine = Machine(torch.device("cpu"), False, torch.get_num_threads())
        self.name = source.metric
        self.ours = self._of_network(source.model)

    def _of_network(self, model: TaskModel) -> dict[str, float]:
        task = self.source.task
        return self._scores(kept_of([model], task, self.encoded, self.machine, finite=True))

    def _scores(self, predictions: Sequence[Any]) -> dict[str, float]:
        """The score of a model, and those of each of several tasks by their names."""
        task = self.source.task
        answers = task.answers(self.encoded.examples, self.encoded.units, predictions)
        labels = [task.label_of(answer) for answer in answers]
        scores = {"": score(task.metric(self.name), self.gold, labels)}
        for member in members_of(task):
            places = places_of(self.encoded.examples, member.name)
            if places:
                gold = [self.gold[place][1] for place in places]
                predicted = [labels[place][1] for place in places]
                scores[member.name] = score(member.task.metric(member.metric), gold, predicted)
        return scores

    def beside(self, path: Path, inputs: Sequence[str]) -> dict[str, Any]:
        """The scores of the model and of an ONNX file, and the loss."""
        task, threads = self.source.task, self.machine.threads
        model = OnnxModel(path, inputs, threads, outputs_of(task), self.source.wide)
        return self._lost(self._scores(model.predictions(task, self.encoded)))

    def without_wide(self) -> dict[str, Any]:
        """The scores of the model and of its network alone, and the loss."""
        bare = TaskModel(self.source.model.encoder, self.source.model.head)
        return self._lost(self._of_network(bare))

    def _lost(self, theirs: Mapping[str, float]) -> dict[str, Any]:
        lost = {
            name: {"model": ours, "exported": theirs[name], "loss": ours - theirs[name]}
            for name, ours in self.ours.items()
        }
        about: dict[str, Any] = {"metric": self.name, "examples": len(self.gold), **lost.pop("")}
        metrics = {member.name: member.metric for member in members_of(self.source.task)}
        if metrics:
            tasks = {name: {"metric": metrics[name], **one} for name, one in lost.items()}
            about["tasks"] = tasks
        return about
