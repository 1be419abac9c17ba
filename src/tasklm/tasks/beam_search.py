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

LOOKS = 8  # steps after which a device is asked which examples are finished
LEAVING = 8  # so many times the finished examples are all: then they leave the batch
NEVER = -float("inf")
LATER = 1e6  # hypotheses that did not end come after those that did, whose scores are not as low


class Writing(Protocol):
    """A decoder in the middle of the texts (rows, beam) of some examples."""

    def best(self, tokens: Any, count: int) -> tuple[Any, Any]:
        """The `count` likeliest tokens, or all, to follow each of the last tokens (rows, beam):
        their logarithmic probabilities and their numbers (rows, beam, count).
        """
        ...

    def reorder(self, parents: Any) -> None:
        """Continues with other hypotheses: those that had the numbers (rows, beam)."""
        ...

    def keep(self, rows: Any) -> None:
        """Continues with some of the examples: (rows,) bool."""
        ...


class Arrays(Protocol):
    """The few operations that a search needs of a library of arrays."""

    waits: bool  # whether looking at a value waits for the device

    def full(self, shape: tuple[int, ...], value: Any, like: Any) -> Any:
        """An array of one value, on the device of another array and with its type."""
        ...

    def numbers(self, like: Any) -> Any:
        """An array of 32-bit numbers as large as another."""
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

    def numbers(self, like: Any) -> Any:
        """An array of 32-bit numbers as large as another."""
        return like.astype(np.float32)

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


@dataclass
class Open:
    """Examples whose search goes on, by their numbers in the batch."""

    numbers: Any  # (rows,)
    limits: Any  # (rows,)
    tokens: Any  # (rows, beam, longest)
    last: Any  # (rows, beam)
    scores: Any  # (rows, beam)
    done: Any  # (rows,)
    bank: Bank

    def rows(self, places: Any) -> Open:
        """Some of the examples."""
        bank = Bank(*(part[places] for part in vars(self.bank).values()))
        others = {name: part[places] for name, part in vars(self).items() if name != "bank"}
        return Open(**others, bank=bank)


def beam_search(
    writing: Writing, first: Any, limits: Any, search: Search, end: int, arrays: Arrays
) -> Any:
    """The candidates (rows, 1, beam, 2 + tokens) of some examples: score, whether it ended, tokens.

    `first` (rows,) are the tokens that begin each text, `limits` (rows,) its most tokens, which the
    one that ends it counts among; −1 follows the last token. Finished examples leave the batch as
    soon as they are an eighth of it.
    """
    longest, gone = int(limits.max()), []
    at_work = _begun(first, limits, search.beam, arrays)
    for step in range(1, longest + 1):
        _step(at_work, writing, step, search, end, arrays)
        if arrays.waits and step % LOOKS and step < longest:
            continue
        finished = int(at_work.done.sum())
        if finished == len(at_work.done):
            break
        if LEAVING * finished >= len(at_work.done):
            gone.append(at_work.rows(at_work.done))
            going_on = ~at_work.done
            at_work = at_work.rows(going_on)
            writing.keep(going_on)
    return _in_order([*gone, at_work], arrays)


def _begun(first: Any, limits: Any, beam: int, arrays: Arrays) -> Open:
    """All examples before their first token, when all hypotheses are the same one."""
    rows, longest = len(first), int(limits.max())
    scores = arrays.full((rows, beam), NEVER, arrays.numbers(first))
    room = arrays.full((rows, beam), NEVER, scores)
    scores[:, 0] = 0.0
    tokens = arrays.full((rows, beam, longest), -1, first)
    last = first[:, None] + arrays.full((rows, beam), 0, first)
    numbers = arrays.full((rows,), 1, first).cumsum(0) - 1
    return Open(numbers, limits, tokens, last, scores, limits < 0, Bank(tokens, room, room))


def _step(of: Open, writing: Writing, step: int, search: Search, end: int, arrays: Arrays) -> None:
    """Writes a token more of each hypothesis."""
    rows, beam = of.last.shape
    logs, following = writing.best(of.last, 2 * beam)
    each = logs.shape[-1]
    total = (of.scores[..., None] + logs).reshape(rows, beam * each)
    best, places = arrays.top(total, min(2 * beam, beam * each))
    parents, words = places // each, arrays.take(following.reshape(rows, beam * each), places)
    longer = arrays.take(of.tokens, parents)
    longer[:, :, step - 1] = words
    ends = words == end
    ended = arrays.where(ends & ~of.done[:, None], best / step**search.penalty, NEVER)
    ended[:, beam:] = NEVER
    of.bank.add(longer, ended, ended, arrays)
    of.scores, chosen = arrays.top(arrays.where(ends, NEVER, best), beam)
    of.tokens, of.last = arrays.take(longer, chosen), arrays.take(words, chosen)
    writing.reorder(arrays.take(parents, chosen))
    now = of.scores / step**search.penalty
    full = of.bank.scores[:, -1] > NEVER
    of.done = of.done | (full & (of.bank.scores[:, 0] >= now[:, 0]))
    cut = (of.limits <= step) & ~of.done
    open_ones = arrays.where(cut[:, None], now, NEVER)
    of.bank.add(of.tokens, open_ones, _after_all(open_ones, arrays), arrays)
    of.done = of.done | cut


def _after_all(scores: Any, arrays: Arrays) -> Any:
    """Ranks of hypotheses that did not end, which are in order: after all that did."""
    ranks = arrays.full(scores.shape, -LATER, scores)
    for place in range(scores.shape[1]):
        ranks[:, place] -= place
    return arrays.where(scores == NEVER, NEVER, ranks)


def _in_order(parts: list[Open], arrays: Arrays) -> Any:
    """The candidates of all examples by their numbers."""
    outputs = arrays.join([_output(part.bank, arrays)[None] for part in parts])[0]
    numbers = arrays.join([part.numbers[None] for part in parts])[0]
    return outputs[numbers.argsort()][:, None]


def _output(bank: Bank, arrays: Arrays) -> Any:
    scores = arrays.where(bank.scores == NEVER, FEWEST, bank.scores)
    ended = arrays.where(bank.ranks > -LATER, 1.0 + 0.0 * scores, 0.0)
    parts = [scores[..., None], ended[..., None], bank.tokens + 0.0 * scores[..., None]]
    return _side_by_side(parts, arrays)


def _side_by_side(parts: list[Any], arrays: Arrays) -> Any:
    """Arrays (rows, beam, …) side by side along the last axis."""
    return arrays.join([part.swapaxes(1, 2) for part in parts]).swapaxes(1, 2)
