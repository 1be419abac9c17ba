"""An ONNX file used like one of our models, run by onnxruntime on the CPU."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import RunError
from tasklm.export.onnx_runtime import load_onnxruntime
from tasklm.models.damage import damage_is_clear
from tasklm.models.task_model import LoadedModels, check_length, require_width
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import MOST_JSON, require_regular
from tasklm.tasks.base import TASKS, Elsewhere, Task
from tasklm.tasks.baselines.wide_parts import load_wide
from tasklm.tasks.several import members_of, require_columns
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary

RECORD, GRAPH = "export.json", "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "places")
# names of operators as ONNX's nodes have them: field 4, length, text
LOOPS = (b"\x22\x04Loop", b"\x22\x04Scan")
LOGITS = "logits"  # the output of a graph of one task
COLUMNS = ("text_column", "label_column", "options_column")  # keys of `recipe.Data`


def session_of(path: Path, threads: int) -> Any:
    """The ONNX file, ready to run on the CPU; `threads` share the work of one call."""
    try:
        runtime = load_onnxruntime()
    except ImportError as error:
        problem = f"{path} needs the package onnxruntime ({error})"
        raise RunError(f"{problem}. Install it: pip install 'tasklm[onnx]'") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # one node after the other
    options.log_severity_level = 4  # errors are raised as well
    try:
        _require_plain_graph(path)
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has no common error class for unreadable files
        raise RunError(
            f"{path} cannot be read ({_first_line(error)}). Export the model again."
        ) from None


def _require_plain_graph(path: Path) -> None:
    """Raises ValueError for graphs with loops, which may never end; our exports have none."""
    if require_regular(path).stat().st_size == 0:
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if any(content.find(operator) >= 0 for operator in LOOPS):
            raise ValueError("its graph has a loop")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


@dataclass(frozen=True)
class GraphOutput:
    """An output of a graph: the logits of a task, which are some columns of the head's outputs."""

    name: str
    columns: slice
    of_words: bool  # for each token; otherwise for the first one of a row

    @property
    def width(self) -> int | None:
        """How many numbers it has for a row or token; None if that is not known."""
        if self.columns.stop is None:
            return None
        return int(self.columns.stop - self.columns.start)


def outputs_of(task: Task) -> list[GraphOutput]:
    """The outputs of a task's graph: one, or one for each of several by its name.

    Raises ValueError for a task whose answers do not follow from the logits of single tokens.
    """
    outputs = []
    for member in members_of(task):
        outputs.append(GraphOutput(member.name, member.columns, _there(member.task).of_words))
    if outputs:
        return outputs
    there = _there(task)
    with shapes_alone():
        head = task.head(8, 0.0)
        width = head(torch.empty(1, 1 + len(there.marks), 8)).shape[-1]
    return [GraphOutput(LOGITS, slice(0, width), there.of_words)]


def _there(task: Task) -> Elsewhere:
    if task.elsewhere is None:
        raise ValueError(f"tasklm does not export {task.kind}")
    return task.elsewhere


class OnnxModel(nn.Module):
    """Computes the outputs of the task's head, from the same batches as our models."""

    def __init__(
        self,
        path: Path,
        inputs: Sequence[str],
        threads: int,
        outputs: Sequence[GraphOutput] = (GraphOutput(LOGITS, slice(None), False),),
        wide: float | None = None,
    ) -> None:
        """`outputs`: those that are laid side by side; `wide`: the scale of a wide part."""
        super().__init__()
        self.wide = wide
        self.session = session_of(path, threads)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.path = path

    def alone(self, name: str, wide: bool) -> OnnxModel:
        """The model of one of several tasks: the same graph, of which one output is read."""
        own = copy(self)
        (output,) = [one for one in self.outputs if one.name == name]
        own.outputs = [replace(output, columns=slice(0, output.width))]
        own.wide = self.wide if wide else None
        return own

    def forward(self, batch: TokenBatch) -> Tensor:
        """The outputs (rows, places, …) of padded rows."""
        there = batch.pieces > 0
        # rows are padded to a multiple of 8, which may be more than the model has positions for
        longest = int(there.sum(1).max())
        segments = batch.segments
        if segments is None:
            segments = torch.zeros_like(batch.ids)
        assert batch.places is not None
        tensors = {
            "input_ids": batch.ids[:, :longest],
            "attention_mask": there.long()[:, :longest],
            "token_type_ids": segments[:, :longest],
            "places": batch.places,
        }
        arrays = {name: tensors[name].numpy() for name in self.inputs}
        read = []
        for logits in self._logits(arrays, rows=len(batch.ids), length=longest):
            if logits.dim() == 2:  # those of other places are never read
                read.append(logits[:, None].expand(-1, self._answers(batch), -1))
            else:
                places = batch.places[..., None].expand(-1, -1, logits.shape[-1])
                read.append(logits.gather(1, places))
        outputs = torch.cat(read, -1)
        if self.wide is None:
            return outputs
        assert batch.wide is not None
        return outputs + self.wide * batch.wide

    def _answers(self, batch: TokenBatch) -> int:
        """How many answers a row has: one, or one for each place where tasks read others."""
        assert batch.places is not None
        return batch.places.shape[1] if len(self.outputs) > 1 else 1

    def _logits(self, arrays: dict[str, Any], rows: int, length: int) -> list[Tensor]:
        try:
            names = [one.name for one in self.outputs]
            every = [torch.as_tensor(one) for one in self.session.run(names, arrays)]
        except Exception as error:  # the library has no common error class
            raise RunError(
                f"{self.path} cannot be run ({_first_line(error)}). Export the model again."
            ) from None
        for logits, output in zip(every, self.outputs, strict=True):
            width = output.width or logits.shape[-1]
            shapes = ((rows, width), (rows, length, width))
            if not logits.is_floating_point() or logits.shape not in shapes:
                shape = f"shape {tuple(logits.shape)}, not {width} for each row"
                raise RunError(f"{self.path} has outputs of {shape}. Export the model again.")
        return every


def _columns(values: Any) -> dict[str, str]:
    """The keys of `recipe.Data` for columns of rows."""
    return {name: str(value) for name, value in values.items() if name in COLUMNS}


def is_export(folder: Path) -> bool:
    """Whether a folder was written by `tasklm export`."""
    return (folder / RECORD).is_file()


def open_onnx(folder: Path, threads: int) -> LoadedModels:
    """The model of a folder that was exported to ONNX, with its task and vocabulary."""
    with damage_is_clear(folder):
        record = read_json(folder / RECORD, MOST_JSON)
        require_whole(folder, RECORD)
        if not str(record["to"]).startswith("onnx"):
            problem = f"{folder} was exported for transformers and must be loaded with it"
            folders = "the folder 'model' of the run, or an export with --to onnx"
            raise RunError(f"{problem}. Give {folders}.")
        task = TASKS.get(str(record["task"]["kind"])).from_dict(record["task"])
        inputs = [str(name) for name in record["inputs"]]
        vocabulary = Vocabulary.load(folder / "tokenizer.json")
        outputs = outputs_of(task)
        if not set(inputs) <= set(INPUTS):
            raise ValueError(f"tasklm does not export {task.kind} with inputs {', '.join(inputs)}")
        check_length(record["length"])
        record["columns"] = _columns(record.get("columns", {}))
        own = record.get("columns_by_task", {})
        record["columns_by_task"] = {str(name): _columns(one) for name, one in own.items()}
        with shapes_alone():
            head = task.head(8, 0.0)
        wide, scale = load_wide(folder), record.get("wide")
        require_width(wide, head)
        require_columns(wide, task)
        if (wide is None) != (scale is None) or not isinstance(scale, float | None):
            raise ValueError("export.json and the folder wide do not match")
    model = OnnxModel(folder / GRAPH, inputs, threads, outputs, scale)
    return LoadedModels([model], task, vocabulary, record, wide)
