"""The checks of every selector before it starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasklm.errors import DataError

MOST_PASSAGES = (1 << 32) - 1  # rankings are sorted by keys that hold passage numbers of 32 bits


def require_passages(count: int, banned: npt.NDArray[np.bool_]) -> int:
    """The number of allowed passages out of `count`; raises if there are none."""
    if len(banned) != count:
        raise ValueError(f"banned covers {len(banned)} passages, but the store has {count}")
    if count == 0:
        raise DataError(
            "the corpus has no passages", remedy="Give --corpus files or folders that contain text."
        )
    if count > MOST_PASSAGES:
        raise DataError(
            f"the corpus has {count:,} passages, but the limit is {MOST_PASSAGES:,}",
            remedy="Select from parts of it separately.",
        )
    allowed = count - int(np.count_nonzero(banned))
    if allowed == 0:
        raise DataError(
            f"nothing is left of the corpus: all {count:,} passages share text with dev or test",
            remedy=(
                "Give a corpus that does not consist of the evaluation data, or raise "
                "data.contamination_words."
            ),
        )
    return allowed
