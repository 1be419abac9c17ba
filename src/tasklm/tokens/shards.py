"""Tokens on disk: one flat array and the offset of every passage, read by memory map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np

from tasklm.corpus.processes import results_in_order
from tasklm.errors import RunError
from tasklm.storage.checksums import damage_is_clear, load_array, require_offsets
from tasklm.storage.files import read_json, write_json
from tasklm.tokens.tokenizer import Vocabulary

FORMAT = 1


class Shards:
    """The token numbers of passages 0 … n−1."""

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray) -> None:
        self.tokens, self.offsets = tokens, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each passage."""
        return np.diff(self.offsets)

    @classmethod
    def open(cls, folder: Path) -> Shards:
        """The shards in a folder, memory-mapped."""
        with damage_is_clear(folder / "shards.json"):
            about = read_json(folder / "shards.json")
            if about["format"] != FORMAT:
                raise RunError(
                    f"{folder} has a different token format. Delete it and run the same command "
                    "again."
                )
            dtype = np.dtype(about["dtype"])
        path = folder / "tokens.bin"
        with damage_is_clear(path):
            tokens: np.ndarray = np.zeros(0, dtype)
            if path.stat().st_size:
                tokens = np.memmap(path, dtype, mode="r")
        offsets = load_array(folder / "offsets.npy", np.int64, mapped=True)
        require_offsets(folder / "offsets.npy", offsets, len(tokens))
        return cls(tokens, offsets)


def write_shards(folder: Path, batches: Iterable[Sequence[str]], vocabulary: Vocabulary) -> None:
    """Encodes and writes batches of passages, a few of which are in memory at a time."""
    dtype = np.dtype(np.uint16 if len(vocabulary) <= 65_536 else np.uint32)
    lengths: list[np.ndarray] = [np.zeros(1, np.int64)]
    with (folder / "tokens.bin").open("wb") as file, ThreadPoolExecutor(2) as pool:
        for encoded in results_in_order(pool, vocabulary.encode, batches, 2):
            lengths.append(np.array([len(numbers) for numbers in encoded], np.int64))
            tokens = chain.from_iterable(encoded)
            file.write(np.fromiter(tokens, dtype, int(lengths[-1].sum())).tobytes())
    np.save(folder / "offsets.npy", np.cumsum(np.concatenate(lengths)))
    write_json(folder / "shards.json", {"format": FORMAT, "dtype": dtype.name})
