"""Task examples as tokens, and batches of them: padded rows, or rows packed end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import NONE, Task, Unit
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import MOST as MOST_MARKS
from tasklm.tasks.several import turns_of
from tasklm.tasks.turns import share_taught
from tasklm.tasks.writing import TextUnit
from tasklm.tokens.packing import first_fit
from tasklm.tokens.rows import Rows, pad_rows
from tasklm.tokens.tokenizer import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

    from tasklm.tokens.batches import TokenBatch

MOST = 24  # examples that share a packed row
# of every example, at most, for which a packed row has room by the number of its examples
FEW_PLACES = 1 + MOST_MARKS


@dataclass(frozen=True)
class Beside:
    """Numbers that units have beside their targets, for each answer: wide, or taught."""

    name: str  # of the field of a unit and of a batch
    outputs: int  # of an answer; 0: no unit has any
    of_places: bool  # an answer for each place; otherwise one for each unit

    @classmethod
    def of(cls, name: str, units: Sequence[Unit]) -> Beside:
        """The numbers that a field of some units has."""
        if name == "wide":
            shapes = [unit.wide_shape for unit in units]
        else:
            arrays = [unit.taught for unit in units]
            shapes = [(len(array), array.shape[1]) for array in arrays if array is not None]
        outputs = max((outputs for _, outputs in shapes), default=0)
        return cls(name, outputs, any(answers > 1 for answers, _ in shapes))

    def zeros(self, rows: int, places: int, units: int) -> NDArray[np.float32]:
        """Room for a batch whose rows have so many places and units at most."""
        return np.zeros((rows, places if self.of_places else units, self.outputs), np.float32)

    def put(self, room: NDArray[np.float32], unit: Unit, row: int, place: int, number: int) -> None:
        """Puts the numbers of a unit where its first place, or the unit, stands in its row."""
        array = unit.added() if self.name == "wide" else unit.taught
        if array is not None:
            first = place if self.of_places else number
            room[row, first : first + len(array)] = array


def most_groups(together: int) -> int:
    """The maximum number of groups of a size that share a packed row."""
    return max(1, MOST // together)


class EncodedExamples:
    """Task examples as units: tokens, the places that the head reads, and the targets there.

    Adjacent units with one common answer (the options of a choice) form a group; a batch consists
    of whole groups.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        units: Sequence[Unit],
        vocabulary: Vocabulary,
        length: int,
        together: int = 1,
    ) -> None:
        self.examples = examples
        self.units = units
        self.vocabulary = vocabulary
        self.length = length
        self.together = together
        sizes = np.array([len(unit.tokens) for unit in units], np.int64).reshape(-1, together)
        self.writes = any(isinstance(unit, TextUnit) for unit in units[:1])
        if self.writes:  # rows of targets are as long as those of tokens
            sizes = np.maximum(sizes, [[_targets_of(unit)] for unit in units])
        self.lengths = sizes.max(1, initial=1)  # of the groups: that of their longest unit
        self.totals = sizes.sum(1)  # … and that of all their units
        counts = {len(unit.places) for unit in units} or {1}
        self.most_places = max(counts)
        self.few_places = len(counts) == 1 and max(counts) <= FEW_PLACES
        self.pairs = any(unit.second for unit in units)
        self.has_lasts = any(unit.lasts is not None for unit in units)
        beside = [Beside.of(name, units) for name in ("wide", "taught")]
        self.beside = [numbers for numbers in beside if numbers.outputs]

    @classmethod
    def of(
        cls,
        task: Task,
        examples: Sequence[Example],
        vocabulary: Vocabulary,
        length: int,
        wide: NDArray[np.float32] | None = None,
        taught: NDArray[np.float32] | None = None,
    ) -> EncodedExamples:
        """Examples as their task encodes them, with outputs of a wide part and teachers, if any.

        Of tasks that take turns, only those that share a head have a wide part.
        """
        if turns := turns_of(task):
            encoded = [(turn, turn.encode(examples, vocabulary, length)) for turn in turns]
            if wide is not None:
                assert turns[0].mixed
                Unit.share_out(encoded[0][1], wide)
            if taught is not None:
                share_taught(encoded, len(examples), taught)
            return EncodedTurns(
                [
                    cls(examples, units, vocabulary, length, turn.task.together)
                    for turn, units in encoded
                ]
            )
        units = task.encode(examples, vocabulary, length)
        if wide is not None and units:
            units[0].share_out(units, wide)
        if taught is not None and units:
            units[0].share_lessons(units, taught)
        return cls(examples, units, vocabulary, length, task.together)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def group_examples(self) -> list[Example]:
        """The example of each group: one that is too long for a row has several."""
        return [self.examples[unit.example] for unit in self.units[:: self.together]]

    def numbers_of(self, groups: np.ndarray) -> list[int]:
        """The numbers of the units of some groups."""
        firsts = np.asarray(groups)[:, None] * self.together
        return (firsts + np.arange(self.together)).flatten().tolist()

    def padded(self, groups: np.ndarray, shape: tuple[int, int, int] | None = None) -> TokenBatch:
        """The `rows` of some groups as tensors."""
        return _batch(self.rows(groups, shape))

    def rows(self, groups: np.ndarray, shape: tuple[int, int, int] | None = None) -> Rows:
        """The units of some groups, one a row, padded to the longest of them, by a multiple of 8.

        Or all batches have one shape: groups, tokens, places. Rows of padding then fill up the last
        batch.
        """
        units = [self.units[number] for number in self.numbers_of(groups)]
        return replace(self._pad(units, shape), together=self.together)

    def padded_texts(self, groups: np.ndarray, unit: int) -> TokenBatch:
        """One unit of each group, padded, for a language model: the others are near copies."""
        units = [self.units[int(group) * self.together + unit] for group in groups]
        return _batch(self._pad(units, None))

    def _pad(self, units: list[Unit], shape: tuple[int, int, int] | None) -> Rows:
        pad = self.vocabulary.pad
        if shape is None:
            padded = pad_rows([unit.tokens for unit in units], pad, 8)
            places = max(len(unit.places) for unit in units)
        else:
            groups, length, places = shape
            units += [Unit([], [], None)] * (groups * self.together - len(units))
            padded = pad_rows([unit.tokens for unit in units], pad, length=length)
        read, lasts = np.zeros((len(units), places), np.int64), self._no_lasts((len(units), places))
        wanted = self._no_targets((len(units), self._target_places(units, places, shape)))
        for row, unit in enumerate(units):
            read[row, : len(unit.places)] = unit.places
            if lasts is not None and unit.lasts is not None:
                lasts[row, : len(unit.places)] = unit.lasts
            if wanted is not None and unit.targets is not None:
                wanted[row, : len(unit.targets)] = unit.targets
        rooms = {numbers.name: numbers.zeros(len(units), places, 1) for numbers in self.beside}
        for numbers in self.beside:
            for row, unit in enumerate(units):
                numbers.put(rooms[numbers.name], unit, row, 0, 0)
        segments = None
        if self.pairs:
            columns = np.arange(padded.ids.shape[1])
            seconds = np.array([unit.second or len(columns) for unit in units])
            in_second = (columns >= seconds[:, None]) & (padded.pieces > 0)
            segments = in_second.astype(np.int64)
        return replace(
            padded,
            targets=wanted,
            segments=segments,
            places=read,
            lasts=lasts,
            wide=rooms.get("wide"),
            taught=rooms.get("taught"),
        )

    def _target_places(
        self, units: Sequence[Unit], places: int, shape: tuple[int, int, int] | None
    ) -> int:
        """How many targets a row has: one for each place, or those of texts to write."""
        if not self.writes:
            return places
        if shape is not None:
            return shape[1]
        return -(-max(map(_targets_of, units)) // 8) * 8

    def targets(self) -> Tensor:
        """The targets at the places of all units, one after the other, in one row."""
        import torch

        wanted = self._no_targets((1, sum(len(unit.places) for unit in self.units)))
        assert wanted is not None
        start = 0
        for unit in self.units:
            if unit.targets is not None:
                wanted[0, start : start + len(unit.places)] = unit.targets
            start += len(unit.places)
        return torch.from_numpy(wanted)

    def _no_targets(self, places: tuple[int, int]) -> np.ndarray | None:
        """An array for targets that are all NONE as yet; None where examples are not labelled."""
        for unit in self.units:
            if unit.targets is not None:
                return np.full((*places, *unit.targets.shape[1:]), NONE, unit.targets.dtype)
        return None

    def _no_lasts(self, places: tuple[int, int]) -> np.ndarray | None:
        """An array for the last columns of what begins at places; None where these are unknown."""
        if not self.has_lasts:
            return None
        return np.full(places, -1, np.int64)

    def packed(self, groups: np.ndarray, rows: int, length: int) -> TokenBatch:
        """Lays the units of some groups end to end in `rows` rows of `length`, or more rows.

        The units of a group stay next to one another, in one row.
        """
        units = [self.units[number] for number in self.numbers_of(groups)]
        most = most_groups(self.together)
        where = first_fit(self.totals[groups], length, most)
        grid = max(rows, int(where.max()) + 1), length
        return self._lay(units, np.repeat(where, self.together), grid, most * self.together)

    def packed_texts(self, groups: np.ndarray, unit: int, rows: int, length: int) -> TokenBatch:
        """Lays one unit of each group end to end, for a language model."""
        units = [self.units[int(group) * self.together + unit] for group in groups]
        where = first_fit(np.array([len(one.tokens) for one in units], np.int64), length, MOST)
        return self._lay(units, where, (max(rows, int(where.max()) + 1), length), MOST)

    def _lay(
        self, units: Sequence[Unit], where: np.ndarray, grid: tuple[int, int], most: int
    ) -> TokenBatch:
        """Puts each unit into its row of a grid, with room for the places of `most` in each row."""
        rows, length = grid
        places = (rows, most * self.most_places if self.few_places else length)
        ids = np.full(grid, self.vocabulary.pad, np.int64)
        pieces = np.zeros(grid, np.int64)
        positions = np.zeros(grid, np.int64)
        segments = np.zeros(grid, np.int64) if self.pairs else None
        read, wanted = np.zeros(places, np.int64), self._no_targets(places)
        lasts = self._no_lasts(places)
        rooms = {numbers.name: numbers.zeros(rows, places[1], most) for numbers in self.beside}
        filled, pieces_in, places_in = (np.zeros(rows, np.int64) for _ in range(3))
        for unit, row in zip(units, where, strict=True):
            start = filled[row]
            here = slice(start, start + len(unit.tokens))
            for numbers in self.beside:
                numbers.put(rooms[numbers.name], unit, row, places_in[row], pieces_in[row])
            pieces_in[row] += 1
            ids[row, here] = unit.tokens
            pieces[row, here] = pieces_in[row]
            positions[row, here] = np.arange(len(unit.tokens))
            if segments is not None and unit.second:
                segments[row, start + unit.second : here.stop] = 1
            there = slice(places_in[row], places_in[row] + len(unit.places))
            read[row, there] = start + np.asarray(unit.places)
            if wanted is not None and unit.targets is not None:
                wanted[row, there] = unit.targets
            if lasts is not None and unit.lasts is not None:
                lasts[row, there] = start + np.asarray(unit.lasts)
            filled[row], places_in[row] = here.stop, there.stop
        packed = Rows(
            ids,
            pieces,
            positions,
            targets=wanted,
            segments=segments,
            places=read,
            lasts=lasts,
            wide=rooms.get("wide"),
            taught=rooms.get("taught"),
        )
        return _batch(packed, most, self.length)

    def in_order(self, rows: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
        """Yields every group once, padded, in `blocks`, with the numbers of the groups."""
        for groups in self.blocks(rows):
            yield groups, self.padded(groups)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yields the numbers of all groups, sorted by length, for batches of about so many rows;
        each has a group at least.
        """
        order, batch = np.argsort(self.lengths, kind="stable"), max(1, rows // self.together)
        for start in range(0, len(order), batch):
            yield order[start : start + batch]


class EncodedTurns(EncodedExamples):
    """The examples of tasks that take turns: a batch has groups of one turn.

    Groups are numbered through all turns, those of a turn one after the other.
    """

    def __init__(self, parts: Sequence[EncodedExamples]) -> None:
        first = parts[0]
        units = list(chain.from_iterable(part.units for part in parts))
        super().__init__(first.examples, units, first.vocabulary, first.length)
        self.parts = list(parts)
        self.firsts = np.cumsum([0, *map(len, parts)])  # groups before each turn, and in all
        self.lengths = np.concatenate([part.lengths for part in parts])
        self.totals = np.concatenate([part.totals for part in parts])
        self._units_before = np.cumsum([0, *(len(part.units) for part in parts)])

    @property
    def group_examples(self) -> list[Example]:
        """The example of each group."""
        return list(chain.from_iterable(part.group_examples for part in self.parts))

    def turn_and_own(self, groups: np.ndarray) -> tuple[int, np.ndarray]:
        """The turn of some groups, which have the same, and their numbers there."""
        turn = int(np.searchsorted(self.firsts, groups[0], side="right")) - 1
        own = np.asarray(groups) - self.firsts[turn]
        assert own.min() >= 0 and own.max() < len(self.parts[turn])
        return turn, own

    def numbers_of(self, groups: np.ndarray) -> list[int]:
        """The numbers of the units of some groups of one turn."""
        turn, own = self.turn_and_own(groups)
        before = int(self._units_before[turn])
        return [before + number for number in self.parts[turn].numbers_of(own)]

    def rows(self, groups: np.ndarray, shape: tuple[int, int, int] | None = None) -> Rows:
        """The units of some groups of one turn, one a row."""
        turn, own = self.turn_and_own(groups)
        return replace(self.parts[turn].rows(own, shape), turn=turn)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yields the numbers of all groups, turn by turn."""
        for turn, part in enumerate(self.parts):
            for own in part.blocks(rows):
                yield own + self.firsts[turn]


def _targets_of(unit: Unit) -> int:
    return 1 if unit.targets is None else len(unit.targets)


def _batch(rows: Rows, most: int = 1, longest: int = 0) -> TokenBatch:
    """Rows as tensors, which networks alone need."""
    from tasklm.tokens.batches import TokenBatch

    return TokenBatch.of(rows, most, longest)
