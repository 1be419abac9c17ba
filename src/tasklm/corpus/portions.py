"""What a corpus was read from: its files with the hashes of their contents, and its portions, which
are the passages of one file under one licence.

The first file that has a passage owns it. Passages that stand in another file, too, are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import read_json, write_json

NAME = "files.json"  # in the folder of a store
AT_ONCE = 1 << 20  # passages that are compared with the repeated ones at once

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class FileRead:
    """A file of a corpus as it was read."""

    name: str
    bytes: int
    sha256: str  # of all its bytes; empty where it was skipped
    documents: int = 0
    empty: int = 0  # documents without words
    left_out: int = 0  # rows, for their licences
    licence_column: str = ""
    skipped: bool = False  # a table without a column of text


@dataclass(frozen=True)
class Portion:
    """The passages of one file under one licence, as its rows state it; "" where they do not."""

    file: int  # its number among the files
    licence: str
    passages: int = 0  # that it owns
    repeats: int = 0  # left out: the same text stands before, there or in an earlier file
    elsewhere: int = 0  # owned passages that stand in another file, too


@dataclass
class Repeats:
    """Passages that were left out because an earlier one has their text: their keys and files."""

    keys: list[Keys] = field(default_factory=list)
    files: list[NDArray[np.uint32]] = field(default_factory=list)

    def add(self, keys: Keys, files: NDArray[np.uint32]) -> None:
        """Adds some."""
        if len(keys):
            self.keys.append(keys)
            self.files.append(files)

    def owners(
        self, blocks: Iterator[tuple[Keys, Ints]], file_of: NDArray[np.int64]
    ) -> Counter[int]:
        """How many passages of each portion stand in another file, too.

        `blocks` has the keys of all kept passages and their portions, `file_of` the file of each
        portion.
        """
        if not self.keys:
            return Counter()
        keys, place = np.unique(np.concatenate(self.keys), return_inverse=True)
        owner = np.zeros(len(keys), np.int64)
        for own, portions in blocks:
            at = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
            same = keys[at] == own
            owner[at[same]] = portions[same]
        elsewhere = file_of[owner[place]] != np.concatenate(self.files)
        return counted(owner[np.unique(place[elsewhere])])


def counted(numbers: Ints) -> Counter[int]:
    """How often each number occurs."""
    values, counts = np.unique(numbers, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def portion_places(sources: Sequence[tuple[int, str, str]], portions: Sequence[Portion]) -> Ints:
    """The portion that each source, a (file, name, licence), belongs to."""
    places = {(portion.file, portion.licence): at for at, portion in enumerate(portions)}
    return np.array([places.get((file, licence), -1) for file, _, licence in sources], np.int64)


def portions_from(
    named: Sequence[tuple[int, str]],
    passages: Counter[int],
    repeats: Counter[int],
    elsewhere: Counter[int],
) -> list[Portion]:
    """The portions of these files and licences that have text, with the counts of each by its
    number; in the order of the files.
    """
    portions = [
        Portion(file, licence, passages[number], repeats[number], elsewhere[number])
        for number, (file, licence) in enumerate(named)
    ]
    with_text = [one for one in portions if one.passages or one.repeats]
    return sorted(with_text, key=lambda one: (one.file, one.licence))


def write_files(folder: Path, files: Sequence[FileRead], portions: Sequence[Portion]) -> None:
    """Writes what a store was read from."""
    about: dict[str, Any] = {
        "files": [asdict(file) for file in files],
        "portions": [asdict(portion) for portion in portions],
    }
    write_json(folder / NAME, about)


def read_files(folder: Path) -> tuple[list[FileRead], list[Portion]]:
    """What a store was read from."""
    with damage_is_clear(folder / NAME):
        about = read_json(folder / NAME)
        files = [FileRead(**file) for file in about["files"]]
        portions = [Portion(**portion) for portion in about["portions"]]
        if any(not 0 <= portion.file < len(files) for portion in portions):
            raise ValueError("a portion is of no file")
    return files, portions
