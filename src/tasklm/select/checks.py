"""What every selector refuses before it starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasklm.errors import DataError

MOST_PASSAGES = (1 << 32) - 1  # rankings are sorted by keys that hold passage numbers of 32 bits


def require_passages(count: int, banned: npt.NDArray[np.bool_]) -> int:
    """How many of `count` passages may be used; raises when there are none."""
    if len(banned) != count:
        raise ValueError(f"banned speaks of {len(banned)} passages, the store has {count}")
    if count == 0:
        raise DataError(
            "the corpus has no passages", remedy="Give --corpus files or folders that hold text."
        )
    if count > MOST_PASSAGES:
        raise DataError(
            f"the corpus has {count:,} passages, {MOST_PASSAGES:,} are the most",
            remedy="Select from parts of it, one after the other.",
        )
    allowed = count - int(np.count_nonzero(banned))
    if allowed == 0:
        raise DataError(
            f"nothing is left of the corpus: all {count:,} passages share text with dev or test",
            remedy=(
                "Give a corpus that is not made of the "
                "evaluation data, or raise data.contamination_words."
            ),
        )
    return allowed
