"""BM25 by brute force in float64, with pyarrow and scipy and nothing of tasklm: what the engines
are checked against.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

K1, B = 1.2, 0.75
TIE = 1e-6  # relative difference of scores that counts as none
_LINES_AT_ONCE = 50_000


def exact_scores(
    passages: Path, count: int, queries: Sequence[Sequence[str]], out: Path
) -> NDArray[np.float64]:
    """The score of every passage for every query, [queries, passages], mapped from the file `out`,
    made unless it is there.
    """
    if not out.exists():
        scratch = out.with_suffix(".parts")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        vocabulary = sorted({word for query in queries for word in query})
        frequency, lengths = _count(passages, vocabulary, scratch)
        if len(lengths) != count:
            raise RuntimeError(f"{passages} has {len(lengths)} lines, not {count}")
        _score(queries, vocabulary, frequency, lengths, scratch, out.with_suffix(".partial"))
        out.with_suffix(".partial").replace(out)
        shutil.rmtree(scratch)
    scores: NDArray[np.float64] = np.load(out, mmap_mode="r")
    return scores


def _count(
    passages: Path, vocabulary: list[str], scratch: Path
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Writes how often each word of the vocabulary is in each passage; returns the words'
    frequencies and the passages' lengths.
    """
    frequency = np.zeros(len(vocabulary), np.int64)
    lengths: list[NDArray[np.int64]] = []
    known = pa.array(vocabulary, pa.string())
    with passages.open(encoding="utf-8", newline="\n") as file:
        while lines := [line.rstrip("\n") for line in islice(file, _LINES_AT_ONCE)]:
            split = pc.split_pattern(pa.array(lines, pa.string()), " ")
            sizes = pc.list_value_length(split).to_numpy().astype(np.int64)
            column = pc.fill_null(pc.index_in(split.flatten(), value_set=known), -1).to_numpy()
            row = np.repeat(np.arange(len(lines)), sizes)[column >= 0]
            column = column[column >= 0]
            counts = sp.coo_array(
                (np.ones(len(row)), (row, column)), (len(lines), len(vocabulary))
            ).tocsr()  # sums what is equal
            frequency += np.bincount(counts.indices, minlength=len(vocabulary))
            sp.save_npz(scratch / f"{len(lengths)}.npz", counts, compressed=False)
            lengths.append(sizes)
    return frequency, np.concatenate(lengths)


def _score(
    queries: Sequence[Sequence[str]],
    vocabulary: list[str],
    frequency: NDArray[np.int64],
    lengths: NDArray[np.int64],
    scratch: Path,
    out: Path,
) -> None:
    idf = np.log(1 + (len(lengths) - frequency + 0.5) / (frequency + 0.5))
    number = {word: place for place, word in enumerate(vocabulary)}
    weights = np.zeros((len(vocabulary), len(queries)))
    for column, query in enumerate(queries):
        for word, times in Counter(query).items():
            weights[number[word], column] = times * idf[number[word]]
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    scores: Any = np.lib.format.open_memmap(out, "w+", np.float64, (len(queries), len(lengths)))
    for part, start in enumerate(range(0, len(lengths), _LINES_AT_ONCE)):
        counts = sp.load_npz(scratch / f"{part}.npz")
        here = norms[start : start + counts.shape[0]]
        counts.data = counts.data / (counts.data + np.repeat(here, np.diff(counts.indptr)))
        scores[:, start : start + counts.shape[0]] = (counts @ weights).T
    scores.flush()


def overlap(scores: NDArray[np.float64], found: NDArray[Any], k: int) -> float:
    """The share of the k best passages that was found; passages as good as the k-th count as
    equals.

    Where fewer than k passages share a word with the query, the share is of those.
    """
    wanted = min(k, int(np.count_nonzero(scores > 0)))
    if not wanted:
        return 1.0
    last = float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])
    numbers = np.unique(found[found >= 0])  # one passage twice is one passage
    right = int(np.count_nonzero(scores[numbers] >= last * (1 - TIE)))
    return min(right, wanted) / wanted
