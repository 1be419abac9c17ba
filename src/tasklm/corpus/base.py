"""The interface of a corpus for selection, wherever its passages are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.portions import FileRead, Portion
from tasklm.tracking import Tracker

if TYPE_CHECKING:
    from tasklm.corpus.contamination import Contamination
    from tasklm.corpus.spark.store import SparkStore
    from tasklm.corpus.store import PassageStore


class Passages(Protocol):
    """Passages that can be read here, by their numbers."""

    def id(self, i: int, /) -> str: ...
    def text(self, i: int, /) -> str: ...
    def source(self, i: int, /) -> str: ...


class PassageSource(Protocol):
    """A corpus on this machine or on a cluster."""

    folder: Path
    counts: dict[str, int]
    files: list[FileRead]  # that it was read from, in order
    portions: list[Portion]

    def portions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of passages among the portions."""

    def __len__(self) -> int: ...

    @property
    def local(self) -> PassageStore | None:
        """The store itself, if all texts are on this machine."""

    @property
    def cluster(self) -> SparkStore | None:
        """The corpus on the cluster, if the texts are there."""

    def sample(self) -> list[str]:
        """The texts of some passages drawn at random, the same at each call."""

    def contaminated(
        self, splits: Mapping[str, Sequence[str]], run_words: int, tracker: Tracker
    ) -> Contamination:
        """Which passages share `run_words` consecutive words with any text of the splits."""

    def fetch(self, numbers: NDArray[np.int64], folder: Path) -> Passages:
        """At least some given passages, readable here; the folder is for their texts."""

    def close(self) -> None:
        """Releases what only selection needs, such as a cluster."""
