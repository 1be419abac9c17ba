"""A decoder that was exported to ONNX: two graphs, and the beam search over them in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import RunError
from tasklm.export.onnx_model import GRAPH, session_of
from tasklm.models.answering import kept_by
from tasklm.tasks.base import Task
from tasklm.tasks.beam_search import NumpyArrays, beam_search
from tasklm.tasks.writing import Search, Writer, search_of
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.rows import Rows

DECODER = "decoder.onnx"
MEMORY, STATE, LOGS, AFTER = "memory", "state", "log_probabilities", "state_after"
ENCODER_INPUTS = ["input_ids", "attention_mask"]
DECODER_INPUTS = ["tokens", "attention_mask", MEMORY, STATE]


class OnnxSteps:
    """The decoder's graph in the middle of some texts."""

    def __init__(self, session: Any, memory: Any, mask: Any, state: Any, never: Any) -> None:
        self.session, self.memory, self.mask = session, memory, mask
        self.state, self.never = state, never

    def next(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """The logarithmic probabilities (rows, beam, vocabulary) of the next tokens."""
        given = dict(zip(DECODER_INPUTS, (tokens, self.mask, self.memory, self.state), strict=True))
        logs, self.state = self.session.run([LOGS, AFTER], given)
        logs = np.array(logs, np.float32)
        logs[..., self.never] = -np.inf
        return logs

    def best(self, tokens: NDArray[np.int64], count: int) -> tuple[Any, Any]:
        """The likeliest of them, and their numbers."""
        logs = self.next(tokens)
        return NumpyArrays().top(logs, min(count, logs.shape[-1]))

    def reorder(self, parents: NDArray[np.int64]) -> None:
        """Continues with the hypotheses that had the numbers (rows, beam)."""
        rows = len(parents)
        self.state = self.state[:, :, np.arange(rows)[:, None], parents]

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Continues with some of the texts."""
        self.mask, self.state = self.mask[rows], self.state[:, :, rows]
        self.memory = self.memory[:, :, rows]


class OnnxWriter:
    """Writes texts with the two graphs of a folder."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder = folder
        self.encoder = session_of(folder / GRAPH, threads)
        self.decoder = session_of(folder / DECODER, threads)
        shapes = {one.name: one.shape for one in self.decoder.get_inputs()}
        if list(shapes) != DECODER_INPUTS or len(shapes[STATE]) != 7:
            raise RunError(f"{folder / DECODER} is not a decoder. Export the model again.")
        layers, both, _, _, heads, _, width = shapes[STATE]
        self.first = (layers, both), (heads, 0, width)

    def alone(self, name: str, wide: bool) -> OnnxWriter:
        """This one: there are no others."""
        return self

    def predictions(self, task: Task, examples: EncodedExamples) -> list[Any]:
        """What a task keeps of the candidates for each unit."""
        search, vocabulary = search_of(task), examples.vocabulary
        return kept_by(lambda rows: self.written(rows, search, vocabulary), task, examples)

    def written(self, rows: Rows, search: Search, vocabulary: Writer) -> NDArray[np.float32]:
        """The candidates (rows, 1, beam, 2 + tokens) for padded rows."""
        sizes = (rows.pieces > 0).sum(1)
        longest = int(sizes.max())
        ids, mask = rows.ids[:, :longest], (rows.pieces[:, :longest] > 0).astype(np.int64)
        try:
            given = dict(zip(ENCODER_INPUTS, (ids, mask), strict=True))
            (memory,) = self.encoder.run([MEMORY], given)
            steps = self.begun(memory, mask, search.beam, vocabulary)
            limits = search.limits(sizes - 2)
            texts = beam_search(steps, ids[:, 0], limits, search, vocabulary.sep, NumpyArrays())
        except Exception as error:  # the library has no common error class
            reason = str(error).partition("\n")[0] or type(error).__name__
            problem = f"the graphs of {self.folder} cannot be run ({reason})"
            raise RunError(f"{problem}. Export the model again.") from None
        return np.asarray(texts, np.float32)

    def begun(self, memory: Any, mask: Any, beam: int, vocabulary: Writer) -> OnnxSteps:
        """A decoder that has written nothing yet."""
        (layers, both), rest = self.first
        state = np.zeros((layers, both, len(mask), beam, *rest), np.float32)
        types = int(self.decoder.get_outputs()[0].shape[-1])
        never = np.arange(types) >= len(vocabulary)
        never[[token for token in vocabulary.specials if token != vocabulary.sep]] = True
        return OnnxSteps(self.decoder, memory, mask, state, never)
