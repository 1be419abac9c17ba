"""Images with their labels before they are decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasklm.images.decoding import Encoded


@dataclass
class Listed:
    """The images of a split; the label of one without is ""."""

    images: list[Encoded] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


@dataclass
class Listing:
    """The splits by name, and sets of training images that count as the labelled ones."""

    splits: dict[str, Listed]
    labelled: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # name → (sets, images)
