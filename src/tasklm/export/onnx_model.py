"""An ONNX file in the place of a model of ours: by onnxruntime on the CPU, alone or as the folder that an export wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.errors import DataError, RunError
from tasklm.export.onnx_runtime import load_onnxruntime
from tasklm.runs import read_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary

RECORD, GRAPH = "export.json", "model.onnx"
COLUMNS = ("text_column", "label_column", "options_column")  # keys of `recipe.Data`


def session_of(path: Path, threads: int) -> Any:
    """Returns the ONNX file, ready to run on the CPU; `threads` share the work of one call."""
    try:
        runtime = load_onnxruntime()
    except ImportError as error:
        raise RunError(f"{path} needs the package onnxruntime ({error}). Install it: pip install 'tasklm[onnx]'") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # one node after the other
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has no common class for a file that it cannot read
        raise RunError(f"{path} cannot be read ({str(error).splitlines()[0]}). Export the model again.") from None


class OnnxModel(nn.Module):
    """Computes what the task's head would give, from a batch as our models take it."""

    def __init__(self, path: Path, inputs: Sequence[str], threads: int) -> None:
        super().__init__()
        self.session, self.inputs = session_of(path, threads), list(inputs)

    def forward(self, batch: TokenBatch) -> Tensor:
        """Returns the outputs (rows, places, …) of padded rows."""
        there = batch.pieces > 0
        longest = int(there.sum(1).max())  # rows are padded to a multiple of 8, which may be more tokens than the model has positions for
        segments = torch.zeros_like(batch.ids) if batch.segments is None else batch.segments
        tokens = {"input_ids": batch.ids, "attention_mask": there.long(), "token_type_ids": segments}
        assert batch.places is not None
        given = {name: tensor[:, :longest] for name, tensor in tokens.items()} | {"places": batch.places}
        logits = torch.from_numpy(self.session.run(None, {name: given[name].numpy() for name in self.inputs})[0])
        if logits.dim() == 2:
            return logits[:, None]
        return logits.gather(1, batch.places[..., None].expand(-1, -1, logits.shape[-1]))


def is_export(folder: Path) -> bool:
    """Returns whether a folder was written by `tasklm export`."""
    return (folder / RECORD).is_file()


def open_onnx(folder: Path, threads: int) -> tuple[OnnxModel, Task, Vocabulary, dict[str, Any]]:
    """Returns the model of a folder that was exported to ONNX, its task, its vocabulary and what the folder says about itself."""
    record = read_json(folder / RECORD)
    try:
        if not str(record["to"]).startswith("onnx"):
            problem = f"{folder} was exported for transformers, which is what loads it"
            raise RunError(f"{problem}. Give the folder 'model' of the run, or one that was exported with --to onnx.")
        task = TASKS.get(str(record["task"]["kind"])).from_dict(record["task"])
        inputs, vocabulary = [str(name) for name in record["inputs"]], Vocabulary.load(folder / "tokenizer.json")
        record["length"] = int(record["length"])
        record["columns"] = {name: str(value) for name, value in record.get("columns", {}).items() if name in COLUMNS}
    except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
        raise RunError(f"{folder} is damaged ({error}). Export the model again.") from error
    return OnnxModel(folder / GRAPH, inputs, threads), task, vocabulary, record
