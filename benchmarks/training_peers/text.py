"""The text that every engine reads: token shards, and rows packed from them once for the engines
that do not pack.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tasklm.errors import DataError
from tasklm.storage.files import write_json
from tasklm.tokens.batches import shuffled
from tasklm.tokens.packing import fill_rows, plan_rows
from tasklm.tokens.shards import FORMAT, Shards
from tasklm.tokens.tokenizer import CLS, PAD, SEP, SPECIALS

SHORTEST, LONGEST = 57, 300  # tokens of a made-up passage
MOST_ROWS = (
    1 << 15
)  # packed rows that are kept for the peers, who go round them; more would only take memory
# Mandelbrot's shift of the ranks: the most frequent words of a language are less frequent than
# 1/rank
_ZIPF_SHIFT = 2.7


def make_shards(folder: Path, tokens: int, vocabulary: int, seed: int) -> None:
    """Writes about `tokens` made-up tokens with the frequencies of words in a language (Zipf's
    law), as passages.
    """
    random = np.random.default_rng(seed)
    lengths = random.integers(SHORTEST, LONGEST + 1, max(1, 2 * tokens // (SHORTEST + LONGEST)))
    weights = 1 / (np.arange(vocabulary - len(SPECIALS)) + _ZIPF_SHIFT)
    sums = np.cumsum(weights / weights.sum())
    drawn = np.minimum(
        np.searchsorted(sums, random.random(int(lengths.sum()))), len(sums) - 1
    ) + len(SPECIALS)
    dtype = np.dtype(np.uint16 if vocabulary <= 65_536 else np.uint32)
    folder.mkdir(parents=True, exist_ok=True)
    drawn.astype(dtype).tofile(folder / "tokens.bin")
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
    write_json(folder / "shards.json", {"format": FORMAT, "dtype": dtype.name})


def pack_rows(folder: Path, length: int, vocabulary: int, seed: int, file: Path) -> float:
    """Writes rows of `length` tokens, packed as tasklm packs, and returns the share of them that is
    padding.
    """
    shards = Shards.open(folder)
    if len(shards.tokens) and int(shards.tokens.max()) >= vocabulary:
        raise DataError(
            f"a token is {int(shards.tokens.max())}",
            file=folder,
            remedy="Give --vocabulary with the size it was made with.",
        )
    order = shuffled(len(shards), seed)[: 4 * MOST_ROWS]
    plan = plan_rows(shards.offsets, order, length)
    marks = (SPECIALS.index(mark) for mark in (CLS, SEP, PAD))
    ids, pieces, _ = fill_rows(
        plan, np.arange(min(len(plan), MOST_ROWS)), shards.tokens, length, *marks
    )
    np.save(file, ids.astype(np.int32))
    return float((pieces == 0).mean())


class PackedRows(Dataset[Tensor]):
    """Packed rows as plain rows of token numbers, gone round as often as `count` asks."""

    def __init__(self, file: Path, count: int) -> None:
        self.rows, self.count = np.load(file), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Tensor:
        return torch.from_numpy(self.rows[number % len(self.rows)].astype(np.int64))
