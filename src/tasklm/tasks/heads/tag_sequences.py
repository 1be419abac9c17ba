"""What the potentials of a CRF (see `crf`) say of a sentence: the best tags, and all odds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def log_marginals(potentials: NDArray[Any]) -> NDArray[np.float64]:
    """The logarithms of the probabilities of each place's tags, for one row without padding."""
    scores = potentials.astype(np.float64)
    places, tags = len(scores), scores.shape[-1]
    forward, backward = np.zeros((places, tags)), np.zeros((places, tags))
    for place in range(places):
        if place == 0:
            forward[0] = scores[0, 0]
        else:
            forward[place] = np.logaddexp.reduce(forward[place - 1][:, None] + scores[place], 0)
    for place in range(places - 2, -1, -1):
        backward[place] = np.logaddexp.reduce(scores[place + 1] + backward[place + 1], 1)
    ways = forward + backward
    result: NDArray[np.float64] = ways - np.logaddexp.reduce(ways, 1, keepdims=True)
    return result


def best_tags(potentials: NDArray[Any]) -> NDArray[np.int64]:
    """The sequence of tags with the highest score for one row of potentials, without padding
    (Viterbi).
    """
    places = len(potentials)
    tags = np.zeros(places, np.int64)
    if not places:
        return tags
    best = potentials[0, 0].astype(np.float64)
    backwards = np.zeros(potentials.shape[:1] + potentials.shape[2:], np.int64)
    for place in range(1, places):
        scores = best[:, None] + potentials[place]
        backwards[place] = scores.argmax(0)
        best = scores.max(0)
    tags[-1] = best.argmax()
    for place in range(places - 1, 0, -1):
        tags[place - 1] = backwards[place, tags[place]]
    return tags
