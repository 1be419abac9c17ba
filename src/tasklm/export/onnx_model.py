"""An ONNX file used like one of our models, run by onnxruntime on the CPU."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RunError
from tasklm.export.onnx_runtime import load_onnxruntime
from tasklm.models.all_tasks import predictions_of_shared_rows
from tasklm.models.answering import Loaded, for_one_task, kept_by, require_width
from tasklm.models.damage import damage_is_clear
from tasklm.models.saved_model import check_length
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import MOST_JSON, require_regular
from tasklm.tasks.base import TASKS, Elsewhere, Task
from tasklm.tasks.baselines.wide_parts import load_wide
from tasklm.tasks.several import members_of, require_columns, turns_of
from tasklm.tasks.writing import writes
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.rows import Rows
from tasklm.tokens.tokenizer import Vocabulary

RECORD, GRAPH = "export.json", "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "places")
# names of operators as ONNX's nodes have them: field 4, length, text
LOOPS = (b"\x22\x04Loop", b"\x22\x04Scan")
LOGITS = "logits"  # the output of a graph of one task
Floats = NDArray[np.float32]
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
    return [GraphOutput(LOGITS, slice(0, task.wide_width), _there(task).of_words)]


def _there(task: Task) -> Elsewhere:
    if task.elsewhere is None:
        raise ValueError(f"tasklm does not export {task.kind}")
    return task.elsewhere


class OnnxModel:
    """Computes the outputs of the task's head, from the same rows as our networks."""

    def __init__(
        self,
        path: Path,
        inputs: Sequence[str],
        threads: int,
        outputs: Sequence[GraphOutput] = (GraphOutput(LOGITS, slice(None), False),),
        wide: float | None = None,
    ) -> None:
        """`outputs`: those that are laid side by side; `wide`: the scale of a wide part."""
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

    def predictions(self, task: Task, examples: EncodedExamples) -> list[Any]:
        """What a task keeps of the outputs of each unit."""
        return kept_by(self.outputs_for, task, examples)

    def outputs_for(self, rows: Rows) -> Floats:
        """The outputs (rows, places, …) of padded rows."""
        there = rows.pieces > 0
        # rows are padded to a multiple of 8, which may be more than the model has positions for
        longest = int(there.sum(1).max())
        segments = rows.segments
        if segments is None:
            segments = np.zeros_like(rows.ids)
        assert rows.places is not None
        arrays = {
            "input_ids": rows.ids[:, :longest],
            "attention_mask": there[:, :longest].astype(np.int64),
            "token_type_ids": segments[:, :longest],
            "places": rows.places,
        }
        given = {name: arrays[name] for name in self.inputs}
        read = []
        for logits in self._logits(given, len(rows.ids), longest):
            if logits.ndim == 2:  # those of other places are never read
                read.append(np.repeat(logits[:, None], self._answers(rows), 1))
            else:
                read.append(np.take_along_axis(logits, rows.places[..., None], 1))
        outputs = np.concatenate(read, -1)
        if self.wide is None:
            return outputs
        assert rows.wide is not None
        return np.asarray(outputs + self.wide * rows.wide, np.float32)

    def _answers(self, rows: Rows) -> int:
        """How many answers a row has: one, or one for each place where tasks read others."""
        assert rows.places is not None
        return rows.places.shape[1] if len(self.outputs) > 1 else 1

    def _logits(self, arrays: dict[str, Any], rows: int, length: int) -> list[Floats]:
        try:
            names = [one.name for one in self.outputs]
            every = [np.asarray(one) for one in self.session.run(names, arrays)]
        except Exception as error:  # the library has no common error class
            raise RunError(
                f"{self.path} cannot be run ({_first_line(error)}). Export the model again."
            ) from None
        for logits, output in zip(every, self.outputs, strict=True):
            width = output.width or logits.shape[-1]
            shapes = ((rows, width), (rows, length, width))
            if logits.dtype.kind != "f" or logits.shape not in shapes:
                shape = f"shape {logits.shape}, not {width} for each row"
                raise RunError(f"{self.path} has outputs of {shape}. Export the model again.")
        return [logits.astype(np.float32, copy=False) for logits in every]


class Graphs(Protocol):
    """What runs the graphs of a folder."""

    def predictions(self, task: Task, examples: EncodedExamples) -> list[Any]:
        """What a task keeps of the outputs of each unit."""
        ...

    def alone(self, name: str, wide: bool) -> Graphs:
        """That of one of several tasks."""
        ...


@dataclass(frozen=True)
class OnnxExport:
    """The model of a folder that was exported to ONNX."""

    loaded: Loaded
    model: Graphs
    device: ClassVar[str] = "cpu"

    def predictions(self, examples: EncodedExamples) -> list[Any]:
        """What the task keeps of the outputs of each unit."""
        return self.model.predictions(self.loaded.task, examples)

    def predictions_of_all(self, examples: EncodedExamples, inputs: Sequence[int]) -> list[Any]:
        """The same of several tasks, which share rows."""
        return predictions_of_shared_rows(self, examples, inputs)

    def with_task(self, task: Task) -> OnnxExport:
        """The same with a task that differs in how answers are searched for."""
        return replace(self, loaded=replace(self.loaded, task=task))

    def alone(self, name: str) -> OnnxExport:
        """One of several tasks by itself: the same graph, of which one output is read."""
        own = for_one_task(self.loaded, name)
        return OnnxExport(own, self.model.alone(name, own.wide is not None))


def _columns(values: Any) -> dict[str, str]:
    """The keys of `recipe.Data` for columns of rows."""
    return {name: str(value) for name, value in values.items() if name in COLUMNS}


def is_export(folder: Path) -> bool:
    """Whether a folder was written by `tasklm export`."""
    return (folder / RECORD).is_file()


def _writing(
    folder: Path, record: dict[str, Any], task: Task, vocabulary: Vocabulary, threads: int
) -> OnnxExport:
    """The model of a task that writes, which has a graph for each token of a text."""
    from tasklm.export.onnx_writer import OnnxWriter

    check_length(record["length"])
    record["columns"] = _columns(record.get("columns", {}))
    record["columns_by_task"] = {}
    return OnnxExport(Loaded(task, vocabulary, record, None), OnnxWriter(folder, threads))


def open_onnx(folder: Path, threads: int) -> OnnxExport:
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
        if writes(task):
            return _writing(folder, record, task, vocabulary, threads)
        outputs = outputs_of(task)
        if turns_of(task):
            raise ValueError("tasklm does not export tasks that take turns")
        if not set(inputs) <= set(INPUTS):
            raise ValueError(f"tasklm does not export {task.kind} with inputs {', '.join(inputs)}")
        check_length(record["length"])
        record["columns"] = _columns(record.get("columns", {}))
        own = record.get("columns_by_task", {})
        record["columns_by_task"] = {str(name): _columns(one) for name, one in own.items()}
        wide, scale = load_wide(folder), record.get("wide")
        require_width(wide, task)
        require_columns(wide, task)
        if (wide is None) != (scale is None) or not isinstance(scale, float | None):
            raise ValueError("export.json and the folder wide do not match")
    model = OnnxModel(folder / GRAPH, inputs, threads, outputs, scale)
    return OnnxExport(Loaded(task, vocabulary, record, wide), model)
