"""Beam search over several examples at a time, for NumPy's arrays and for PyTorch's tensors.

A hypothesis ends where the token for that is among the best continuations, as many as the beam is
wide; those that end compete by the logarithmic probability divided by length^penalty (Wu et al.,
arXiv 1609.08144, with the length itself in place of (5 + length) / 6). An example is finished when
as many have ended as the beam is wide, and no open one would be better than the best of them were
it to end now; or at its own limit of tokens. So none depends on the others of its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tasklm.tasks.writing import FEWEST, Search

LOOKS = 8  # steps after which a device is asked whether all examples are finished
NEVER = -float("inf")
LATER = 1e6  # hypotheses that did not end come after those that did, whose scores are not as low


class Writing(Protocol):
    """A decoder in the middle of the texts (rows, beam) of some examples."""

    def next(self, tokens: Any) -> Any:
        """The logarithmic probabilities (rows, beam, vocabulary) of what follows the last tokens
        (rows, beam).
        """
        ...

    def reorder(self, parents: Any) -> None:
        """Continues with other hypotheses: those that had the numbers (rows, beam)."""
        ...


class Arrays(Protocol):
    """The few operations that a search needs of a library of arrays."""

    waits: bool  # whether looking at a value waits for the device

    def full(self, shape: tuple[int, ...], value: Any, like: Any) -> Any:
        """An array of one value, on the device of another array and with its type."""
        ...

    def top(self, values: Any, count: int) -> tuple[Any, Any]:
        """The largest values along the last axis, in order, and their places."""
        ...

    def take(self, values: Any, places: Any) -> Any:
        """The entries (rows, places, …) of values (rows, entries, …)."""
        ...

    def where(self, holds: Any, one: Any, other: Any) -> Any:
        """One where something holds, and the other elsewhere."""
        ...

    def join(self, parts: list[Any]) -> Any:
        """Arrays side by side along the second axis."""
        ...


class NumpyArrays:
    """The operations of a search on NumPy's arrays."""

    waits = False

    def full(self, shape: tuple[int, ...], value: Any, like: Any) -> Any:
        """An array of one value with the type of another."""
        return np.full(shape, value, like.dtype)

    def top(self, values: Any, count: int) -> tuple[Any, Any]:
        """The largest values along the last axis, in order, and their places."""
        places = np.argpartition(-values, count - 1, axis=-1)[..., :count]
        values = np.take_along_axis(values, places, -1)
        order = np.argsort(-values, axis=-1, kind="stable")
        return np.take_along_axis(values, order, -1), np.take_along_axis(places, order, -1)

    def take(self, values: Any, places: Any) -> Any:
        """The entries (rows, places, …) of values (rows, entries, …)."""
        places = places.reshape(*places.shape, *(1,) * (values.ndim - 2))
        return np.take_along_axis(values, places, 1)

    def where(self, holds: Any, one: Any, other: Any) -> Any:
        """One where something holds, and the other elsewhere."""
        return np.where(holds, one, other)

    def join(self, parts: list[Any]) -> Any:
        """Arrays side by side along the second axis."""
        return np.concatenate(parts, 1)


@dataclass
class Bank:
    """The best hypotheses of each example that are not continued."""

    tokens: Any  # (rows, beam, longest)
    scores: Any  # (rows, beam)
    ranks: Any  # (rows, beam), by which they are ordered: scores, or −LATER and less

    def add(self, tokens: Any, scores: Any, ranks: Any, arrays: Arrays) -> None:
        """Keeps the best of those that are there and others."""
        every = arrays.join([self.ranks, ranks])
        self.ranks, places = arrays.top(every, self.ranks.shape[1])
        self.tokens = arrays.take(arrays.join([self.tokens, tokens]), places)
        self.scores = arrays.take(arrays.join([self.scores, scores]), places)


def beam_search(
    writing: Writing, first: Any, limits: Any, search: Search, end: int, arrays: Arrays
) -> Any:
    """The candidates (rows, 1, beam, 2 + tokens) of some examples: score, whether it ended, tokens.

    `first` (rows,) are the tokens that begin each text, `limits` (rows,) its most tokens, which the
    one that ends it counts among; −1 follows the last token.
    """
    rows, beam, longest = len(first), search.beam, int(limits.max())
    last = first[:, None] + arrays.full((rows, beam), 0, first)
    tokens = arrays.full((rows, beam, longest), -1, first)
    scores: Any = None
    bank: Any = None
    done = limits < 0
    for step in range(1, longest + 1):
        logs = writing.next(last)
        types = logs.shape[-1]
        if scores is None:  # all hypotheses are the same one as yet
            scores = arrays.full((rows, beam), NEVER, logs)
            scores[:, 0] = 0.0
            room = arrays.full((rows, beam), NEVER, logs)
            bank = Bank(tokens, room, room)
        total = (scores[..., None] + logs).reshape(rows, beam * types)
        best, places = arrays.top(total, min(2 * beam, beam * types))
        parents, words = places // types, places % types
        longer = arrays.take(tokens, parents)
        longer[:, :, step - 1] = words
        ends = words == end
        by_length = best / step**search.penalty
        ended = arrays.where(ends & ~done[:, None], by_length, NEVER)
        ended[:, beam:] = NEVER
        bank.add(longer, ended, ended, arrays)
        scores, chosen = arrays.top(arrays.where(ends, NEVER, best), beam)
        tokens, last = arrays.take(longer, chosen), arrays.take(words, chosen)
        writing.reorder(arrays.take(parents, chosen))
        now = scores / step**search.penalty
        full = bank.scores[:, -1] > NEVER
        done = done | (full & (bank.scores[:, 0] >= now[:, 0]))
        cut = (limits <= step) & ~done
        open_ones = arrays.where(cut[:, None], now, NEVER)
        bank.add(tokens, open_ones, _after_all(open_ones, arrays), arrays)
        done = done | cut
        if (not arrays.waits or step % LOOKS == 0) and bool(done.all()):
            break
    return _output(bank, arrays)


def _after_all(scores: Any, arrays: Arrays) -> Any:
    """Ranks of hypotheses that did not end, which are in order: after all that did."""
    ranks = arrays.full(scores.shape, -LATER, scores)
    for place in range(scores.shape[1]):
        ranks[:, place] -= place
    return arrays.where(scores == NEVER, NEVER, ranks)


def _output(bank: Bank, arrays: Arrays) -> Any:
    scores = arrays.where(bank.scores == NEVER, FEWEST, bank.scores)
    ended = arrays.where(bank.ranks > -LATER, 1.0 + 0.0 * scores, 0.0)
    parts = [scores[..., None], ended[..., None], bank.tokens + 0.0 * scores[..., None]]
    return _side_by_side(parts, arrays)[:, None]


def _side_by_side(parts: list[Any], arrays: Arrays) -> Any:
    """Arrays (rows, beam, …) side by side along the last axis."""
    return arrays.join([part.swapaxes(1, 2) for part in parts]).swapaxes(1, 2)
