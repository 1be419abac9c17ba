"""The files of a fitted wide part: the model, and what models without them said of the training
examples, by the hash of each one's texts, so that an update need not fit out of fold again, nor
count the tokens of old texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.storage.checksums import is_sealed, load_array
from tasklm.storage.files import ARTEFACT
from tasklm.tasks.baselines.counted import keys_of, places_in
from tasklm.tasks.baselines.featuriser import Featuriser
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.examples import Example

OUTPUTS, KEYS = "train.npy", "keys.npy"
ROWS = "rows.npy"  # how many outputs each example has


def save_fitted(
    folder: Path, wide: AnyWide, outputs: NDArray[np.float32], train: Sequence[Example]
) -> None:
    """Writes the model, and the outputs for the training examples with their hashes."""
    wide.save(folder)
    save_counted(folder, wide)
    np.save(folder / OUTPUTS, outputs)
    np.save(folder / KEYS, keys_of(train))
    np.save(folder / ROWS, np.array([len(own) for own in wide.rows_of(train, outputs)], np.int64))


def save_counted(folder: Path, wide: AnyWide) -> None:
    """Writes what was counted in training texts, for an update."""
    if isinstance(wide, Wide) and isinstance(wide.features, Featuriser):
        wide.features.counted.save(folder)


def kept_outputs(
    folder: Path, examples: Sequence[Example]
) -> list[NDArray[np.float32] | None] | None:
    """The outputs in the folder of a finished artefact for each of some examples, None for one that
    it does not have; None in all where it is damaged, or of an earlier version.
    """
    if not (folder / ROWS).exists() or not is_sealed(folder / ARTEFACT):
        return None
    outputs = load_array(folder / OUTPUTS, np.float32, dimensions=2)
    rows = np.split(outputs, np.cumsum(load_array(folder / ROWS, np.int64))[:-1])
    places = places_in(load_array(folder / KEYS, np.uint64), keys_of(examples))
    return [rows[place] if place >= 0 else None for place in places.tolist()]
