"""Batches whose order is a function of the seed and whose position is part of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasklm.errors import RunError
from tasklm.tokens.packing import TILE, Plan, fill_rows, plan_rows, tile_starts
from tasklm.tokens.rows import Rows, pad_rows
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary

WINDOW = 1 << 18  # passages packed at a time: bounds the plan's memory to about 20 MB
SHORTEST_PIECE = 3  # [CLS], a token, [SEP]
MOST_BOUNDED = 65_535  # pieces, empty ones among them, that one launch on a GPU takes


@dataclass
class TokenBatch:
    """Rows of tokens; tokens attend to tokens of the same piece, and piece 0 is padding."""

    ids: Tensor  # (rows, length) int64
    pieces: Tensor  # (rows, length) int64
    positions: Tensor  # (rows, length) int64
    # (rows, places, …): the task's targets, for task batches; NONE where there is none
    targets: Tensor | None = None
    segments: Tensor | None = None  # (rows, length) int64: 0 or 1 in pairs of texts; None: all 0
    # (rows, places) int64: columns that the head reads, for task batches; 0 where there is none
    places: Tensor | None = None
    # (rows, answers, outputs) float32: what the wide part of a model adds; None: it has none
    wide: Tensor | None = None
    taught: Tensor | None = None  # (rows, answers, outputs) float32: what teachers say, as logits
    # (rows, places) int64, for text without labels: the last column of what begins at a place, −1
    # where nothing does
    lasts: Tensor | None = None
    # (groups, pieces + 1) int32: where pieces begin in each group of rows, and its end
    bounds: Tensor | None = None
    most: int = 0  # pieces that a row may hold, padding left out; 0: as many as fit
    longest: int = 0  # tokens that the longest piece may have; 0: as many as a row
    # which tokens of its piece a token sees beside itself: those before it (1), those after it
    # (−1), or all
    direction: int = 0
    # (tiles + 1,) int32: where tiles of whole pieces begin in the flattened batch, and its end
    tiles: Tensor | None = None
    # rows next to one another that are answered as one, and stay in one micro-batch
    together: int = 1
    turn: int = 0  # which of the turns that several tasks take it is of

    @classmethod
    def of(cls, rows: Rows, most: int = 1, longest: int = 0) -> TokenBatch:
        """Rows of arrays as a batch."""
        values: dict[str, Any] = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in vars(rows).items()
        }
        return cls(**values, most=most, longest=longest)

    def flat_places(self) -> Tensor:
        """The places that the head reads in the flattened batch, (rows · places,)."""
        assert self.places is not None
        rows, length = self.ids.shape
        starts = torch.arange(0, rows * length, length, device=self.ids.device)
        return (starts[:, None] + self.places).flatten()

    def to(self, device: torch.device) -> TokenBatch:
        """The batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> TokenBatch:
        """The batch in pinned memory, so that nothing waits for the copy."""
        return self._each(lambda tensor: tensor.pin_memory())

    def part(self, number: int, parts: int) -> TokenBatch:
        """One of `parts` micro-batches of nearly equal size; some are empty if there are few rows.

        Bounds and tiles are counted after cutting, not before.
        """
        assert self.bounds is None and self.tiles is None
        rows = self.rows_of_part(number, parts)
        return self._each(lambda tensor: tensor[rows])

    def rows_of_part(self, number: int, parts: int) -> slice:
        """The rows of one of `parts` micro-batches; those that are answered as one stay in one."""
        groups = len(self.ids) // self.together
        sizes = [groups // parts + (part < groups % parts) for part in range(number + 1)]
        last = self.together * sum(sizes)
        return slice(last - self.together * sizes[-1], last)

    @property
    def tiled(self) -> bool:
        """Whether its rows are longer than a tile, and none of its pieces is."""
        return 0 < self.longest <= TILE < self.ids.shape[1]

    def counted(self) -> TokenBatch:
        """The batch with its tiles, or else with the bounds of its pieces."""
        if self.tiled:
            return replace(self, tiles=torch.from_numpy(tile_starts(self.pieces.numpy(), TILE)))
        return self.with_bounds()

    def with_bounds(self) -> TokenBatch:
        """The batch with the bounds of its pieces, of a size that depends on its shape and `most`.

        Padding is split into pieces of at most `longest` tokens: the kernel does not write longer
        ones.
        """
        pieces = self.pieces.numpy()
        rows, length = pieces.shape
        longest = self.longest or length
        begins = piece_starts(pieces, longest)
        each = (self.most or length // SHORTEST_PIECE + 1) + -(-length // longest)
        divisors = [count for count in range(1, rows + 1) if rows % count == 0]
        groups = next(count for count in divisors if rows // count * each <= MOST_BOUNDED)
        starts = [np.flatnonzero(group) for group in begins.reshape(groups, -1)]
        size = max(rows // groups * each, *map(len, starts))
        bounds = np.full((groups, size + 1), rows // groups * length, np.int32)
        for ends, first in zip(bounds, starts, strict=True):
            ends[: len(first)] = first
        assert np.diff(bounds).max() <= longest, f"a piece is longer than {longest} tokens"
        return replace(self, bounds=torch.from_numpy(bounds), longest=longest)

    def _each(self, change: Callable[[Tensor], Tensor]) -> TokenBatch:
        return replace(self, **changed_tensors(self, change))


def piece_starts(pieces: np.ndarray, longest: int) -> np.ndarray:
    """Whether a piece begins at each token (rows, length); padding does every `longest` tokens."""
    begins = np.ones(pieces.shape, bool)
    begins[:, 1:] = pieces[:, 1:] != pieces[:, :-1]
    column = np.arange(pieces.shape[1])
    # of the piece that a token belongs to
    first = np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    begins |= (pieces == 0) & ((column - first) % longest == 0)
    return begins


def changed_tensors(record: Any, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The tensors among the fields of a dataclass, by their names, each changed."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}


def shuffled(count: int, *seed: int) -> np.ndarray:
    """0 … count−1 in an order that depends only on the seed."""
    return np.random.default_rng(seed).permutation(count)


def padded_rows(
    rows: Sequence[Sequence[int] | np.ndarray], pad: int, multiple: int = 1, length: int = 0
) -> TokenBatch:
    """Rows of tokens, each a piece, padded to `length`, or else to the longest, by a multiple."""
    return TokenBatch.of(pad_rows(rows, pad, multiple, length))


def packed_rows(
    shards: Shards, passages: np.ndarray, vocabulary: Vocabulary, length: int, most: int
) -> TokenBatch:
    """The first rows, at most `most`, of some passages packed in their order."""
    plan = plan_rows(shards.offsets, passages, length)
    rows = np.arange(min(most, len(plan)))
    cls, sep, pad = vocabulary.cls, vocabulary.sep, vocabulary.pad
    arrays = fill_rows(plan, rows, shards.tokens, length, cls, sep, pad)
    ids, pieces, positions = map(torch.from_numpy, arrays)
    return TokenBatch(ids, pieces, positions)


class PackedStream:
    """Endless batches of packed passages, in a new order every epoch."""

    def __init__(
        self,
        shards: Shards,
        vocabulary: Vocabulary,
        length: int,
        batch: int,
        seed: int,
        left_out: Sequence[int] | np.ndarray = (),
    ) -> None:
        self.shards = shards
        self.vocabulary = vocabulary
        self.length = length
        self.batch = batch
        self.seed = seed
        self._left_out = len(left_out)  # passages that are never read …
        self._read: np.ndarray | None = None  # … and the others, where there are any of those
        if len(left_out):
            self._read = np.delete(np.arange(len(shards)), left_out)
        self.epoch, self.window, self.row = 0, 0, 0
        self._plan: Plan | None = None
        self._rows = np.zeros(0, np.int64)

    def state(self) -> dict[str, Any]:
        """The position of the next batch."""
        position = {"epoch": self.epoch, "window": self.window, "row": self.row}
        return {**position, "left_out": self._left_out} if self._left_out else position

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to a position returned by `state`."""
        if state.get("left_out", 0) != self._left_out:
            raise RunError(
                f"this training began with {state.get('left_out', 0)} passages held out, not "
                f"{self._left_out}. Delete its folder, which ends in .partial, to begin it anew."
            )
        self.epoch, self.window, self.row = state["epoch"], state["window"], state["row"]
        self._plan = None

    def next(self) -> TokenBatch:
        """The next batch; the rest of a window is filled up from the next one."""
        cls, sep, pad = self.vocabulary.cls, self.vocabulary.sep, self.vocabulary.pad
        parts: list[tuple[np.ndarray, ...]] = []
        missing = self.batch
        while missing:
            plan = self._current_plan()
            rows = self._rows[self.row : self.row + missing]
            if len(rows):
                tokens, length = self.shards.tokens, self.length
                parts.append(fill_rows(plan, rows, tokens, length, cls, sep, pad))
                missing -= len(rows)
                self.row += len(rows)
            if self.row >= len(self._rows):
                self._next_window()
        ids, pieces, positions = (
            torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*parts, strict=True)
        )
        return TokenBatch(ids, pieces, positions)

    def tokens_read(self) -> np.ndarray:
        """How many tokens of each passage all batches so far had, [CLS] and [SEP] not counted."""
        offsets, order = np.asarray(self.shards.offsets), self._order()
        lengths, read = np.diff(offsets), np.zeros(len(self.shards), np.int64)
        read[order] += self.epoch * lengths[order]
        before = order[: self.window * WINDOW]
        read[before] += lengths[before]
        plan = self._current_plan()
        done = np.zeros(len(plan), np.bool_)
        done[self._rows[: self.row]] = True
        pieces = np.repeat(done, np.diff(plan.row_offsets))
        passages = np.searchsorted(offsets, plan.starts[pieces], side="right") - 1
        np.add.at(read, passages, plan.lengths[pieces])
        return read

    def _next_window(self) -> None:
        self.window, self.row, self._plan = self.window + 1, 0, None
        if self.window * WINDOW >= len(self.shards) - self._left_out:
            self.epoch, self.window = self.epoch + 1, 0

    def _order(self) -> np.ndarray:
        """The passages of this epoch in their order."""
        order = shuffled(len(self.shards) - self._left_out, self.seed, self.epoch)
        return order if self._read is None else self._read[order]

    def _current_plan(self) -> Plan:
        if self._plan is None:
            passages = self._order()[self.window * WINDOW : (self.window + 1) * WINDOW]
            self._plan = plan_rows(self.shards.offsets, passages, self.length)
            self._rows = shuffled(len(self._plan), self.seed, self.epoch, self.window)
        return self._plan
