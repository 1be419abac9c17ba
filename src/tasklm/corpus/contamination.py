"""What the search for text of dev and test in a corpus has found (`decontaminate`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

# shorter task texts are not checked: they would ban every passage that happens to use the phrase
FEWEST_WORDS = 5


@dataclass
class Contamination:
    """Which passages share text with the task, and some of them to show."""

    banned: NDArray[np.bool_]  # over passages
    # passage "id", "source" and "text", the shared run ("words"), the "split", and which of its
    # texts, from 1 ("example")
    examples: list[dict[str, Any]] = field(default_factory=list)
    short: int = 0  # task texts shorter than a run, searched as a whole
    unchecked: int = 0  # task texts under FEWEST_WORDS words
