"""How often training texts have which tokens: kept beside a fitted model, so that an update counts
the new texts alone.

They are kept by the hash of each example's texts, with the tokens that are too rare for a model so
far: with new examples, these may become frequent enough.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tasklm.storage.checksums import damage_is_clear, is_sealed
from tasklm.storage.files import ARTEFACT, write_bytes, write_text
from tasklm.tasks.examples import Example
from tasklm.tasks.saved import of_format

FORMAT = 1
TOKENS, COUNTS = "counted.json", "counted.safetensors"
MOST_COUNTS = 20_000_000  # that are kept: more take long to read, too
Keys = NDArray[np.uint64]
Count = Callable[[Sequence[Any]], tuple[list[str], Any]]  # the tokens, sorted, and their counts


def keys_of(examples: Sequence[Example]) -> Keys:
    """The hash of the texts of each example, as they stand, and of their words where these were
    given.
    """
    whole = ("\0".join((*one.texts, *one.words)) for one in examples)
    texts = (text.encode("utf-8", "surrogatepass") for text in whole)
    hashes = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(hashes), np.uint64)


def places_in(keys: Keys, wanted: Keys) -> NDArray[np.int64]:
    """The position of each wanted key among some, -1 for those that are not there."""
    if not len(keys):
        return np.full(len(wanted), -1)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][places] == wanted, order[places], -1)


@dataclass(frozen=True)
class Counted:
    """The tokens of each block of features, sorted, and a sparse matrix of how often examples have
    them, with one row for each of an example's texts or one for all.
    """

    keys: Keys
    blocks: Mapping[str, tuple[list[str], Any]]
    marks: tuple[str, ...] = ()  # around which the tokens of the block of marks stand

    def narrowed(self, names: Set[str]) -> Counted:
        """Those of some blocks."""
        blocks = {name: one for name, one in self.blocks.items() if name in names}
        return replace(self, blocks=blocks)

    def with_marks(self, marks: Sequence[str]) -> Counted:
        """Without what was counted around other marks."""
        if self.marks == tuple(marks):
            return self
        return self.narrowed(self.blocks.keys() - {"marks"})

    def count(
        self, name: str, keys: Keys, texts: Sequence[Any], count: Count
    ) -> tuple[list[str], Any]:
        """What `count` gives for texts of examples with these keys, which is called for those that
        are not known.
        """
        if name not in self.blocks or not len(keys):
            return count(texts)
        tokens, matrix = self.blocks[name]
        each = matrix.shape[0] // len(self.keys)
        places = places_in(self.keys, keys)
        rows = (places[:, None] * each + np.arange(each)).ravel()
        known = np.repeat(places >= 0, each)
        rest = [text for text, is_known in zip(texts, known, strict=True) if not is_known]
        further, own = count(rest)
        return _joined(tokens, matrix[rows[known]], further, own, known)

    def save(self, folder: Path) -> None:
        """Writes counted.json, the tokens, and counted.safetensors, where they are."""
        if not self.blocks or sum(one.nnz for _, one in self.blocks.values()) > MOST_COUNTS:
            return
        tokens = {name: own for name, (own, _) in self.blocks.items()}
        about = {"format": FORMAT, "marks": self.marks, "tokens": tokens}
        text = json.dumps(about, ensure_ascii=False)
        write_text(folder / TOKENS, f"{text}\n")
        arrays: dict[str, Any] = {"keys": self.keys}
        for name, (_, matrix) in self.blocks.items():
            arrays[f"{name} ends"] = matrix.indptr.astype(np.int32)
            arrays[f"{name} columns"] = matrix.indices.astype(np.int32)
            arrays[f"{name} counts"] = matrix.data.astype(np.uint32)
        write_bytes(folder / COUNTS, safetensors.numpy.save(arrays))

    @classmethod
    def load(cls, folder: Path) -> Counted:
        """What `save` wrote into a finished artefact; nothing where there is none, or where it is
        damaged: everything can be counted again.
        """
        from scipy.sparse import csr_matrix  # takes a while to import

        if not (folder / TOKENS).exists() or not is_sealed(folder / ARTEFACT):
            return NOTHING
        with damage_is_clear(folder / COUNTS):
            about = of_format(folder / TOKENS, FORMAT)
            arrays = safetensors.numpy.load_file(folder / COUNTS)
        blocks = {}
        for name, own in about["tokens"].items():
            ends, columns = arrays[f"{name} ends"], arrays[f"{name} columns"]
            counts = arrays[f"{name} counts"].astype(np.int64)
            blocks[name] = own, csr_matrix((counts, columns, ends), (len(ends) - 1, len(own)))
        return cls(arrays["keys"], blocks, tuple(about["marks"]))


def _joined(
    tokens: list[str], matrix: Any, further: list[str], own: Any, known: NDArray[np.bool_]
) -> tuple[list[str], Any]:
    """All tokens, sorted, and the counts of known and of further texts, in their order."""
    from scipy.sparse import csr_matrix, vstack

    before = set(tokens)
    together = sorted([*tokens, *(token for token in further if token not in before)])
    number = {token: column for column, token in enumerate(together)}
    parts = []
    for part, names in ((matrix, tokens), (own, further)):
        columns = np.array([number[name] for name in names], np.int32)
        shape = (part.shape[0], len(together))
        parts.append(csr_matrix((part.data, columns[part.indices], part.indptr), shape))
    rows = np.empty(len(known), np.int64)
    rows[known] = np.arange(known.sum())
    rows[~known] = known.sum() + np.arange((~known).sum())
    return together, vstack(parts, format="csr")[rows]


NOTHING = Counted(np.zeros(0, np.uint64), {})
