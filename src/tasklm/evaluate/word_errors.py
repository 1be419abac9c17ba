"""Word error rates: the fewest words to substitute, insert and delete, over those of the reference.

Distances are computed with all of a column of the table in one integer (Hyyrö, *A Bit-Vector
Algorithm for Computing Levenshtein and Damerau Edit Distances*, 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNITS: dict[str, Callable[[str], Sequence[str]]] = {
    "words": str.split,
    "characters": lambda text: "".join(text.split()),
}


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest substitutions, insertions and deletions that make one sequence the other."""
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for number, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << number
    everywhere, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, distance = everywhere, 0, len(one)  # where the column rises and falls by one
    for item in other:
        same = places.get(item, 0)
        level = (((same & up) + up) ^ up) | same | down
        right_up = (down | ~(level | up)) & everywhere
        right_down = up & level
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = right_up << 1 | 1
        up = (right_down << 1 | ~(level | right_up)) & everywhere
        down = right_up & level
    return distance
