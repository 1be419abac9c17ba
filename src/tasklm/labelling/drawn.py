"""An even sample of a stream of texts, in bounded memory.

Texts are drawn by the hash of what they say: those with the lowest hashes. So the sample is the
same whatever the order of the files, copies count once, and no text is favoured.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Set
from dataclasses import dataclass

from tasklm.corpus.dedupe import text_key
from tasklm.tasks.examples import Example


@dataclass(frozen=True)
class Drawn:
    """The texts that were drawn, in the order of their hashes, and what was left out on the way."""

    examples: list[Example]
    read: int  # texts, all told
    labelled: int  # of these, left out since they stand in the labelled data
    copies: int  # left out as copies of texts that were drawn


def draw(examples: Iterable[Example], labelled: Set[int], most: int) -> Drawn:
    """Draws at most `most` texts; `labelled` has the keys of texts that are left out."""
    heap: list[int] = []  # negative keys, so that the highest key is on top
    held: dict[int, Example] = {}
    read = known = copies = 0
    for example in examples:
        read += 1
        key = text_key(example.text)
        if key in labelled:
            known += 1
        elif key in held:
            copies += 1
        elif len(heap) < most:
            heapq.heappush(heap, -key)
            held[key] = example
        elif key < -heap[0]:
            del held[-heapq.heapreplace(heap, -key)]
            held[key] = example
    return Drawn([held[key] for key in sorted(held)], read, known, copies)
