"""Trained models as ONNX graphs in fp32, with rows of any number and length."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.errors import RecipeError, RunError
from tasklm.export.onnx_model import INPUTS, LOGITS, GraphOutput, outputs_of, session_of
from tasklm.export.onnx_runtime import load_onnxruntime
from tasklm.export.source import Source, refuse_recurrent
from tasklm.storage.files import write_bytes
from tasklm.tasks.base import Task
from tasklm.tasks.several import members_of, turns_of
from tasklm.tokens.batches import TokenBatch

OPSET = 20  # the first with Gelu; onnxruntime reads it since 1.17
TOLERANCE = 1e-4  # of logits against PyTorch's, times the largest where that is above 1
SEED = 1


def library(name: str) -> Any:
    """A module that the export needs; the error tells how to install it."""
    try:
        if name.partition(".")[0] == "onnxruntime":
            load_onnxruntime()
        return importlib.import_module(name)
    except ImportError as error:
        problem = f"--to onnx needs the packages onnx, onnxruntime and onnxscript ({error})"
        raise RecipeError([f"{problem}; install them with: pip install 'tasklm[onnx]'"]) from None


@contextmanager
def without_chatter() -> Iterator[None]:
    """Silences the developer warnings of exporter and quantiser."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class Graph(nn.Module):
    """What is exported: token numbers (rows, length) → logits, those of each task if several.

    They are for the first token (rows, outputs), or for all (rows, length, tags). If the head reads
    markers, their columns are an input too: places (rows, 1 + marks), including the first token's.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.encoder = source.model.encoder
        self.head = source.model.head
        self.length = source.length
        self.outputs = outputs_of(source.task)
        self.of_all_tokens = any(one.of_words for one in self.outputs)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The logits of each output; the mask is 1 for tokens and 0 for padding."""
        rows, length = input_ids.shape
        positions = torch.arange(length).expand(rows, length)
        # `longest` is the model's length: whether a local layer sees everything must not depend on
        # the row that is traced
        batch = TokenBatch(
            input_ids, attention_mask, positions, segments=token_type_ids, longest=self.length
        )
        wanted = torch.arange(rows) * length  # the first tokens
        if places is not None:
            wanted = (wanted[:, None] + places).flatten()
        if self.of_all_tokens:
            states: Tensor = self.encoder(batch)
        else:
            states = self.encoder(batch, wanted)
        logits: Tensor = self.head(states)
        if len(self.outputs) == 1:
            return (logits,)
        return tuple(self._of(logits, one) for one in self.outputs)

    def _of(self, logits: Tensor, output: GraphOutput) -> Tensor:
        """The columns of one of several tasks; those of texts are of the first token."""
        own = logits[..., output.columns]
        if self.of_all_tokens and not output.of_words:
            own = own[:, 0]
        return own


def check_onnx(source: Source) -> None:
    """Raises RecipeError if the kind's answers do not follow from the logits of single tokens."""
    refuse_recurrent(source, "onnx", "the LSTM of ONNX has no projection of its states")
    members = members_of(source.task)
    if turns := turns_of(source.task):
        alone = ", ".join(turn.names[0] for turn in turns if not turn.mixed)
        problem = f"--to onnx: a file has tasks that share a head, not {alone}"
        raise RecipeError([f"{problem}. --task NAME exports one of the tasks."])
    for member in members:
        if member.name in INPUTS:
            problem = f"--to onnx: a task cannot be called {member.name}, as an input is"
            raise RecipeError([f"{problem}. --task {member.name} exports it by itself."])
        if member.task.elsewhere is None:
            others = "--task NAME exports one of the others."
            raise RecipeError([f"--to onnx: {member.name}: {_searched(member.task)} {others}"])
    if not members and source.task.elsewhere is None:
        raise RecipeError([f"--to onnx: {_searched(source.task)}"])


def _searched(task: Task) -> str:
    """Why a task is not exported."""
    reason = "its answers are searched for in all outputs by tasklm's own code"
    remedy = "Use tasklm predict, or the model in Python."
    return f"{task.kind} cannot be exported: {reason}. {remedy}"


def inputs_of(source: Source) -> list[str]:
    """The names of the inputs.

    token_type_ids if the encoder has segments and a row may have two texts; places if the head
    reads markers.
    """
    inputs = ["input_ids", "attention_mask"]
    two_texts = source.task.pairs or source.task.together > 1
    if source.has_segments and two_texts:
        inputs.append("token_type_ids")
    if _marks(source):
        inputs.append("places")
    return inputs


def _marks(source: Source) -> tuple[str, ...]:
    there = source.task.elsewhere
    if there is None:
        return ()
    return there.marks


def write_graph(source: Source, path: Path, inputs: Sequence[str]) -> None:
    """Writes the model as one ONNX file, whose rows and lengths are free."""
    rows, length = torch.export.Dim("batch"), torch.export.Dim("length", max=source.length)
    # sizes of 0 and 1 would be taken for constants
    tensors = {name: torch.ones(3, 7, dtype=torch.int64) for name in inputs}
    sizes = {name: {0: rows, 1: length} for name in inputs}
    if "places" in inputs:
        tensors["places"] = torch.ones(3, 1 + len(_marks(source)), dtype=torch.int64)
        sizes["places"] = {0: rows}
    names = [one.name for one in outputs_of(source.task)]
    outputs = [f"{LOGITS}.{number}" for number in range(len(names))]
    model = converted(Graph(source), tensors, sizes, outputs)
    turn_weights(model)
    name_outputs(model, names)
    facts = {
        "task": json.dumps(source.task.to_dict(), ensure_ascii=False),
        "length": str(source.length),
    }
    library("onnx").helper.set_model_props(model, facts)
    write_bytes(path, model.SerializeToString())


def converted(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, Any],
    outputs: Sequence[str],
) -> Any:
    """A module as an ONNX graph: `tensors` are examples of its inputs, `sizes` which of their
    dimensions are free.
    """
    for name in ("onnxruntime", "onnx", "onnxscript"):  # the first by us: the others may import it
        library(name)
    try:
        with without_chatter(), torch.no_grad():
            program: Any = torch.onnx.export(
                module.eval(),
                kwargs=dict(tensors),
                input_names=list(tensors),
                output_names=list(outputs),
                dynamic_shapes=dict(sizes),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter has no common error class
        reason = (str(error) or repr(error)).splitlines()[0]
        versions = "Try other versions of torch and onnxscript"
        remedy = f"{versions}, or use PyTorch: tasklm predict, serve --engine torch."
        raise RunError(f"PyTorch cannot write the model as ONNX ({reason}). {remedy}") from error
    return program.model_proto


def turn_weights(model: Any) -> None:
    """Stores weights in the layout of their products: none is transposed later, and the quantiser
    finds all.

    A weight that several layers share (ALBERT's) stays one. The shapes that the exporter noted
    inside the graph are left out: they would be those of the weights before.
    """
    helper = library("onnx").numpy_helper
    graph = model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    turned: dict[str, str] = {}

    def turn(name: str) -> str:
        if name not in turned:
            turned[name] = f"{name}.turned"
            transposed = np.ascontiguousarray(helper.to_array(weights[name]).T)
            graph.initializer.append(helper.from_array(transposed, turned[name]))
        return turned[name]

    renamed: dict[str, str] = {}
    for node in list(graph.node):
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if (
            node.op_type == "Transpose"
            and node.input[0] in weights
            and list(attributes["perm"].ints) == [1, 0]
        ):
            renamed[node.output[0]] = turn(node.input[0])
            graph.node.remove(node)
        elif (
            node.op_type == "Gemm"
            and node.input[1] in weights
            and "transB" in attributes
            and attributes["transB"].i
        ):
            node.input[1] = turn(node.input[1])
            attributes["transB"].i = 0
    used = {graph_output.name for graph_output in graph.output}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        used |= set(node.input)
    for weight in [weight for weight in graph.initializer if weight.name not in used]:
        graph.initializer.remove(weight)
    del graph.value_info[:]


def name_outputs(model: Any, names: Sequence[str]) -> None:
    """Gives the outputs their names; what else has one of them, inside the graph, gets another."""
    graph = model.graph
    inside = [name for node in graph.node for name in node.output]
    inside += [weight.name for weight in graph.initializer]
    renamed = {name: f"{name}/inside" for name in inside if name in names}
    renamed |= {one.name: name for one, name in zip(graph.output, names, strict=True)}
    for node in graph.node:
        for values in (node.input, node.output):
            for place, name in enumerate(values):
                values[place] = renamed.get(name, name)
    for named in [*graph.initializer, *graph.output]:
        named.name = renamed.get(named.name, named.name)


def difference(source: Source, path: Path, inputs: Sequence[str]) -> tuple[float, float]:
    """The largest difference from our model's logits on random rows, and its largest logit."""
    session = session_of(path, torch.get_num_threads())
    draw = torch.Generator().manual_seed(SEED)
    worst, largest, outputs = 0.0, 0.0, outputs_of(source.task)
    for rows, length in ((1, 2), (2, 3), (3, source.length // 2 + 1), (5, source.length)):
        ids = torch.randint(source.shape.vocabulary, (rows, length), generator=draw)
        columns = torch.arange(length).expand(rows, length)
        lengths = (length - 2 * torch.arange(rows)[:, None]).clamp(min=1)
        mask = (columns < lengths).long()  # the further down, the more padding
        segments = None
        if "token_type_ids" in inputs:
            segments = torch.randint(2, ids.shape, generator=draw)
        shares = torch.rand(rows, len(_marks(source)), generator=draw)
        at_marks = (shares * mask.sum(1, keepdim=True)).long()
        places = torch.cat([columns[:, :1], at_marks], 1)
        tensors = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": segments,
            "places": places,
        }
        arrays = {name: np.asarray(tensors[name]) for name in inputs}
        theirs = map(torch.from_numpy, session.run([one.name for one in outputs], arrays))
        of_all = any(one.of_words for one in outputs)  # a tag for each token
        read = columns if of_all else places
        batch = TokenBatch(ids, mask, columns, segments=segments, places=read)
        with torch.inference_mode():
            ours = source.network(batch)
        largest = max(largest, float(ours.abs().max()))
        for one, logits in zip(outputs, theirs, strict=True):
            own = ours[..., one.columns]
            if one.of_words:
                apart = own[mask == 1] - logits[mask == 1]
            else:
                apart = own[:, 0] - logits
            worst = max(worst, float(apart.abs().max()))
    return worst, largest


def require_same(source: Source, path: Path, inputs: Sequence[str]) -> float:
    """The largest difference from PyTorch's logits; raises if it is more than rounding."""
    worst, largest = difference(source, path, inputs)
    if not worst <= TOLERANCE * max(1.0, largest):
        problem = "the exported model does not match the trained one"
        logits = f"logits of up to {largest:.3g} differ by {worst:.3g}"
        remedy = "Nothing was written; try other versions of torch and onnxruntime."
        raise RunError(f"{problem}: {logits}. {remedy}")
    return worst
