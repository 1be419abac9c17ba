"""Endless batches of tasks that take turns: a batch is of one turn, drawn by the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tasklm.tokens.batches import TokenBatch, shuffled
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedTurns


class TurnStream:
    """Batches of the streams of several turns.

    An epoch has about as many examples as there are, and each turn a share of them: as `weights`,
    which are the sums over its tasks of their sizes to a power (BAM, arXiv 1907.04829). The order
    of the turns depends on seed and epoch alone, and each stream goes on where it was.
    """

    def __init__(
        self,
        examples: EncodedTurns,
        streams: Sequence[ExampleStream | None],
        weights: Sequence[float],
        seed: int,
    ) -> None:
        """`streams`: of each turn; None for one without examples."""
        self.examples, self.streams, self.seed = examples, list(streams), seed
        self.epoch, self.index = 0, 0
        shares = len(examples) * np.array(weights) / sum(weights)
        self.counts = [  # batches of each turn in an epoch
            0 if stream is None else max(1, round(float(share) / stream.batch))
            for stream, share in zip(self.streams, shares, strict=True)
        ]

    def __len__(self) -> int:
        return sum(self.counts)

    def turns(self, epoch: int) -> np.ndarray:
        """The turns of an epoch's batches, in order.

        Training begins with a batch of each turn, so that all that is compiled is compiled early.
        """
        turns = np.repeat(np.arange(len(self.counts)), self.counts)
        turns = turns[shuffled(len(turns), self.seed, epoch, 4)]
        if epoch == 0:
            firsts = np.sort(np.unique(turns, return_index=True)[1])
            turns = np.concatenate([turns[firsts], np.delete(turns, firsts)])
        return np.asarray(turns)

    def state(self) -> dict[str, Any]:
        """The position of the next batch."""
        streams = [None if stream is None else stream.state() for stream in self.streams]
        return {"epoch": self.epoch, "index": self.index, "streams": streams}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to a position returned by `state`."""
        self.epoch, self.index = state["epoch"], state["index"]
        for stream, own in zip(self.streams, state["streams"], strict=True):
            if stream is not None:
                stream.restore(own)

    def next_groups(self) -> np.ndarray:
        """The numbers of the next batch's groups, among those of all turns."""
        turn = int(self.turns(self.epoch)[self.index])
        self.index += 1
        if self.index == len(self):
            self.epoch, self.index = self.epoch + 1, 0
        return np.asarray(self._stream(turn).next_groups() + self.examples.firsts[turn])

    def times_read(self) -> np.ndarray:
        """How often each group was in the batches so far, those of a turn one after the other."""
        return np.concatenate(
            [
                np.zeros(len(part), np.int64) if stream is None else stream.times_read()
                for part, stream in zip(self.examples.parts, self.streams, strict=True)
            ]
        )

    def next(self) -> TokenBatch:
        """The next batch, as its task reads it."""
        return self.task_batch(self.next_groups())

    def task_batch(self, groups: np.ndarray) -> TokenBatch:
        """All units of some groups of one turn."""
        turn, own = self.examples.turn_and_own(groups)
        return replace(self._stream(turn).task_batch(own), turn=turn)

    def text_batch(self, groups: np.ndarray, seed: int) -> TokenBatch:
        """One unit of each group, drawn by the seed, as a language model reads them."""
        turn, own = self.examples.turn_and_own(groups)
        return self._stream(turn).text_batch(own, seed)

    def _stream(self, turn: int) -> ExampleStream:
        stream = self.streams[turn]
        assert stream is not None
        return stream


AnyStream = ExampleStream | TurnStream
