"""A model that writes as two ONNX graphs: the encoder with the keys and values that a decoder asks
for, and one step of the decoder, with what it keeps of the steps before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.errors import RecipeError, RunError
from tasklm.export.onnx_graph import converted, turn_weights
from tasklm.export.onnx_model import GRAPH
from tasklm.export.onnx_writer import (
    AFTER,
    DECODER,
    ENCODER_INPUTS,
    LOGS,
    MEMORY,
    STATE,
    OnnxWriter,
)
from tasklm.export.source import Source
from tasklm.storage.files import write_bytes
from tasklm.tasks.heads.decoders import Table, source_of
from tasklm.tokens.batches import TokenBatch

TOLERANCE = 1e-3  # of logarithmic probabilities against PyTorch's
SEED, ROWS, STEPS, BEAM = 1, 3, 6, 2  # of the comparison


class EncoderGraph(nn.Module):
    """Token numbers (rows, length) → what every step of the decoder needs of the sources."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.encoder, self.head = source.model.encoder, source.model.head
        self.length = source.length

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The memory of some sources."""
        rows, length = input_ids.shape
        positions = torch.arange(length).expand(rows, length)
        batch = TokenBatch(input_ids, attention_mask, positions, longest=self.length)
        states, _ = source_of(self.encoder, batch)
        head: Any = self.head
        memory: Tensor = head.memory_of(states)
        return memory


class StepGraph(nn.Module):
    """The last tokens (rows, beam), the memory and the state → logarithmic probabilities of the
    next tokens, and the next state.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.encoder, self.head = source.model.encoder, source.model.head

    def forward(
        self, tokens: Tensor, attention_mask: Tensor, memory: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step."""
        head: Any = self.head
        table = Table.of(self.encoder, head.width)
        states, after = head.step_of(table, tokens, attention_mask > 0, memory, state)
        return table.logits(states).log_softmax(-1), after


def check_decoder(source: Source, to: str, max_mb: float | None) -> None:
    """Raises RecipeError for what cannot be exported, with the way out."""
    if to != "onnx" or max_mb is not None:
        option = "--max-mb" if max_mb is not None else f"--to {to}"
        problem = "errors of rounded weights would add up over the tokens of a text"
        raise RecipeError([f"{option}: {problem}; choose --to onnx, with weights in fp32"])
    if not hasattr(source.model.encoder, "layers") or source.encoder == "bilstm":
        problem = "the LSTM of ONNX has no projection of its states"
        raise RecipeError([f"--to {to}: {problem}. Use tasklm predict, or another encoder."])


def write_decoder(source: Source, folder: Path) -> tuple[float, float]:
    """Writes both graphs into a folder; the largest difference of logarithmic probabilities to
    PyTorch's, and the megabytes of both files.
    """
    head: Any = source.model.head
    rows, length = torch.export.Dim("batch"), torch.export.Dim("length", max=source.length)
    beam, written = torch.export.Dim("beam"), torch.export.Dim("written")
    tensors = {name: torch.ones(3, 7, dtype=torch.int64) for name in ENCODER_INPUTS}
    sizes = {name: {0: rows, 1: length} for name in ENCODER_INPUTS}
    _write(folder / GRAPH, converted(EncoderGraph(source), tensors, sizes, [MEMORY]))
    layers, heads, width = head.state_shape
    with torch.no_grad():
        memory = head.memory_of(torch.zeros(3, 7, head.width))
    tensors = {
        "tokens": torch.ones(3, 5, dtype=torch.int64),
        "attention_mask": torch.ones(3, 7, dtype=torch.int64),
        MEMORY: memory,
        STATE: torch.zeros(layers, 2, 3, 5, heads, 4, width),
    }
    sizes = {
        "tokens": {0: rows, 1: beam},
        "attention_mask": {0: rows, 1: length},
        MEMORY: {2: rows, 4: length},
        STATE: {2: rows, 3: beam, 5: written},
    }
    _write(folder / DECODER, converted(StepGraph(source), tensors, sizes, [LOGS, AFTER]))
    apart = difference(source, folder)
    if not apart <= TOLERANCE:
        problem = f"log-probabilities differ by {apart:.3g}"
        remedy = "Nothing was written; try other versions of torch and onnxruntime."
        raise RunError(f"the exported model does not match the trained one: {problem}. {remedy}")
    size = sum((folder / name).stat().st_size for name in (GRAPH, DECODER))
    return apart, size / 1e6


def _write(path: Path, model: Any) -> None:
    turn_weights(model)
    write_bytes(path, model.SerializeToString())


def difference(source: Source, folder: Path) -> float:
    """The largest difference to PyTorch's logarithmic probabilities over some random steps."""
    draw = torch.Generator().manual_seed(SEED)
    length = max(3, source.length // 2)
    ids = torch.randint(len(source.vocabulary), (ROWS, length), generator=draw)
    columns = torch.arange(length).expand(ROWS, length)
    mask = (columns < length - torch.arange(ROWS)[:, None]).long()
    writer = OnnxWriter(folder, torch.get_num_threads())
    head: Any = source.model.head
    table = Table.of(source.model.encoder, head.width)
    worst = 0.0
    with torch.inference_mode():
        memory, seen = source_of(source.model.encoder, TokenBatch(ids, mask, columns))
        ours = head.begin(table, memory, seen, BEAM)
        given = dict(zip(ENCODER_INPUTS, (ids.numpy(), mask.numpy()), strict=True))
        (theirs_memory,) = writer.encoder.run([MEMORY], given)
        theirs = writer.begun(theirs_memory, mask.numpy(), BEAM, source.vocabulary)
        for _ in range(STEPS):
            tokens = torch.randint(len(source.vocabulary), (ROWS, BEAM), generator=draw)
            own = table.logits(ours.states(tokens)).log_softmax(-1).numpy()
            other = theirs.next(tokens.numpy())
            worst = max(worst, float(np.abs(own - other)[..., ~theirs.never].max()))
            parents = torch.randint(BEAM, (ROWS, BEAM), generator=draw)
            ours.reorder(parents)
            theirs.reorder(parents.numpy())
    return worst
