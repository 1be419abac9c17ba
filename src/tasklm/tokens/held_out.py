"""The passages of the selected text that stage 1 never reads, so that its loss on them can be
measured.

They are those with the smallest hashes of their tokens: the same in every run that reads the same
text with the same vocabulary, whatever its seed, and copies of a passage go together.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasklm.tokens.masking import GOLDEN, mix
from tasklm.tokens.shards import Shards

MOST, SHARE = 500, 0.02  # passages that are held out at most, and of the selected ones
# with fewer selected passages none are held out unless the recipe says so: runs of a minute keep
# all of their text
ENOUGH = 10_000


def held_out_count(wanted: int | None, selected: int) -> int:
    """How many of the selected passages are held out; None: decided by their number."""
    if wanted is None:
        wanted = MOST if selected >= ENOUGH else 0
    return min(wanted, int(SHARE * selected))


def held_out_passages(shards: Shards, count: int) -> np.ndarray:
    """The numbers of `count` passages, by ascending hashes; earlier ones first in a tie."""
    hashes = np.empty(len(shards), np.uint64)
    _hash(shards.tokens, shards.offsets, hashes)
    return np.argsort(hashes, kind="stable")[:count]


@njit(cache=True, nogil=True)
def _hash(tokens, offsets, hashes):  # type: ignore[no-untyped-def]
    for passage in range(len(hashes)):
        state = GOLDEN
        for place in range(offsets[passage], offsets[passage + 1]):
            state = mix(state + GOLDEN * np.uint64(tokens[place] + 1))
        hashes[passage] = state
