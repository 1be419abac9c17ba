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


def save_fitted(
    folder: Path, wide: AnyWide, outputs: NDArray[np.float32], train: Sequence[Example]
) -> None:
    """Writes the model, and the outputs for the training examples with their hashes."""
    wide.save(folder)
    save_counted(folder, wide)
    np.save(folder / OUTPUTS, outputs)
    np.save(folder / KEYS, keys_of(train))


def save_counted(folder: Path, wide: AnyWide) -> None:
    """Writes what was counted in training texts, for an update."""
    if isinstance(wide, Wide) and isinstance(wide.features, Featuriser):
        wide.features.counted.save(folder)


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
    places = places_in(keys, keys_of(examples))
    return outputs[places], places >= 0
