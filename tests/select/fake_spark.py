"""The few operations of Spark that tasklm uses, in one process: partitions are lists, their order
is shuffled, values are pickled.

It stands for Spark where PySpark or Java is missing, and lets many cases be tried in the time that
Spark takes to start.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any


class Broadcast:
    """A value that is the same everywhere."""

    def __init__(self, value: Any) -> None:
        self.value = travelled(value)

    def unpersist(self) -> None:
        del self.value  # whoever uses it later fails

    def __reduce__(self) -> Any:
        raise TypeError("a broadcast inside a value that travels cannot be read there")


class Rdd:
    """Partitions, computed anew each time: a task that is not repeatable would show."""

    def __init__(self, compute: Callable[[], list[list[Any]]], draw: random.Random) -> None:
        self.compute, self.draw = compute, draw

    def _made(self, compute: Callable[[], list[list[Any]]]) -> Rdd:
        return Rdd(compute, self.draw)

    def mapPartitions(self, work: Callable[[Iterable[Any]], Iterable[Any]]) -> Rdd:
        return self._made(
            lambda: [[travelled(value) for value in work(iter(part))] for part in self.compute()]
        )

    def map(self, work: Callable[[Any], Any]) -> Rdd:
        return self.mapPartitions(lambda part: map(work, part))

    def flatMap(self, work: Callable[[Any], Iterable[Any]]) -> Rdd:
        return self.mapPartitions(lambda part: (found for value in part for found in work(value)))

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> Rdd:
        def dealt() -> list[list[Any]]:
            parts: list[list[Any]] = [[] for _ in range(count)]
            for key, value in self.collect():
                parts[place(key) % count].append((key, value))
            for part in parts:
                self.draw.shuffle(part)
            return parts

        return self._made(dealt)

    def repartitionAndSortWithinPartitions(self, count: int, place: Callable[[Any], int]) -> Rdd:
        return self.partitionBy(count, place).mapPartitions(
            lambda part: sorted(part, key=lambda entry: entry[0])
        )

    def reduceByKey(
        self, merge: Callable[[Any, Any], Any], count: int, place: Callable[[Any], int]
    ) -> Rdd:
        def merged(part: Iterable[Any]) -> Iterator[Any]:
            found: dict[Any, Any] = {}
            for key, value in part:
                found[key] = merge(found[key], value) if key in found else value
            yield from found.items()

        return self.partitionBy(count, place).mapPartitions(merged)

    def treeReduce(self, merge: Callable[[Any, Any], Any]) -> Any:
        return reduce(merge, self.collect())

    def collect(self) -> list[Any]:
        parts = self.compute()
        self.draw.shuffle(parts)
        return [value for part in parts for value in part]

    def toLocalIterator(self) -> Iterator[Any]:
        return iter(self.collect())

    def count(self) -> int:
        return len(self.collect())

    def unpersist(self) -> None:
        """Does nothing: nothing is kept."""


def travelled(value: Any) -> Any:
    """The value as it arrives on another machine: Spark pickles what it sends, so what cannot be
    pickled must fail here.
    """
    return pickle.loads(pickle.dumps(value, protocol=5))


class Context:
    """Stands for a SparkContext."""

    defaultParallelism = 2

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def parallelize(self, values: Sequence[Any], parts: int) -> Rdd:
        bounds = [len(values) * number // parts for number in range(parts + 1)]
        return Rdd(lambda: [list(values[a:z]) for a, z in pairwise(bounds)], self.draw)

    def broadcast(self, value: Any) -> Broadcast:
        return Broadcast(value)


class FakeSpark:
    """Stands for `Spark`."""

    def __init__(self, seed: int = 0) -> None:
        self.context, self.held = Context(seed), dict[Any, Any]()

    def persisted(self, rdd: Rdd, level: str) -> Rdd:
        assert level in ("DISK_ONLY", "MEMORY_AND_DISK")
        return rdd

    def stop(self) -> None:
        self.held = {}
