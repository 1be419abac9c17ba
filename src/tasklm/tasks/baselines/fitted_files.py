"""The files of a fitted wide part: the model, and what models without them said of the training
examples, by the hash of each one's texts, so that an update need not fit out of fold again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.storage.checksums import is_sealed, load_array
from tasklm.storage.files import ARTEFACT
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.examples import Example

OUTPUTS, KEYS = "train.npy", "keys.npy"
Keys = NDArray[np.uint64]


def keys_of(examples: Sequence[Example]) -> Keys:
    """The hash of the texts of each example, as they stand."""
    texts = ("\0".join(one.texts).encode("utf-8", "surrogatepass") for one in examples)
    hashes = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(hashes), np.uint64)


def save_fitted(
    folder: Path, wide: AnyWide, outputs: NDArray[np.float32], train: Sequence[Example]
) -> None:
    """Writes the model, and the outputs for the training examples with their hashes."""
    wide.save(folder)
    np.save(folder / OUTPUTS, outputs)
    np.save(folder / KEYS, keys_of(train))


def kept_outputs(
    folder: Path, examples: Sequence[Example]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]] | None:
    """The outputs in the folder of a finished artefact, a row for each of some examples, and which
    of them it has; None where it is damaged, of an earlier version, or has not one row each.
    """
    if not (folder / KEYS).exists() or not is_sealed(folder / ARTEFACT):
        return None
    keys = load_array(folder / KEYS, np.uint64)
    outputs = load_array(folder / OUTPUTS, np.float32, dimensions=2)
    if len(keys) != len(outputs) or not len(keys):
        return None
    order = np.argsort(keys, kind="stable")
    wanted = keys_of(examples)
    places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return outputs[order][places], keys[order][places] == wanted
