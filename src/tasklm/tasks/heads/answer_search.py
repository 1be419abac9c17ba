"""From the outputs of a span head to answers: a beam over their starts, and the threshold below
which none is given.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats, Metric

RANK = 32  # numbers of each of the two vectors whose product scores an end
# starts looked at, and candidates kept, of a window; as in ELECTRA's program for SQuAD
BEAM = 20
OF_NETWORK = 2 + 2 * RANK  # outputs of a network: start, bias and the two vectors
# of a wide part's own two vectors: [CLS], the likeliest starts, and all others in one
AXES = 1 + BEAM + 1
OUTPUTS = OF_NETWORK + 2 * AXES

Candidate = tuple[
    int, int, float
]  # first and last place of an answer, and the logarithm of its probability
Kept = tuple[float, list[Candidate]]  # score of "no answer", and the best candidates, best first


def best_answers(outputs: Floats, beam: int, longest: int) -> Kept:
    """The score of "no answer" (that of place 0, [CLS]) and the `beam` best answers that begin at
    one of the `beam` best starts.

    A score is log p(start) + log p(end | start); answers have at most `longest` places.
    """
    start_logs = _log_softmax(outputs[:, 0])
    starts = 1 + np.argsort(-start_logs[1:], kind="stable")[:beam]
    looked_at = np.concatenate([[0], starts])
    begin, finish = outputs[looked_at, 2 : 2 + RANK], outputs[:, 2 + RANK : OF_NETWORK]
    of_network = begin @ finish.T / math.sqrt(RANK) + outputs[:, 1]
    of_wide = outputs[looked_at, OF_NETWORK : OF_NETWORK + AXES] @ outputs[:, OF_NETWORK + AXES :].T
    scores = start_logs[looked_at, None] + _log_softmax(of_network + of_wide)
    lengths = np.arange(len(outputs)) - starts[:, None]
    joint = np.where((lengths >= 0) & (lengths < longest), scores[1:], -np.inf)
    ranked = np.argsort(-joint, axis=None, kind="stable")[:beam]
    rows, ends = np.unravel_index(ranked, joint.shape)
    pairs = zip(starts[rows].tolist(), ends.tolist(), joint[rows, ends].tolist(), strict=True)
    return float(scores[0, 0]), [pair for pair in pairs if pair[2] > -math.inf]


def best_threshold(metric: Metric, differences: Floats, given: Floats, held_back: Floats) -> float:
    """The best threshold on the difference above which an answer is given; in a tie the one nearest
    to 0.

    `given` and `held_back` are the statistics of each example with its answer and with none. Where
    a difference is minus infinity, there is no answer to give.
    """
    there = np.isfinite(differences)
    order = np.argsort(-differences[there], kind="stable")
    sorted_ = differences[there][order]
    if not len(sorted_):
        return 0.0
    gains = np.cumsum((given - held_back)[there][order], axis=0)
    sums = held_back.sum(0) + np.concatenate(
        [np.zeros((1, gains.shape[1])), gains]
    )  # row k: the first k answers are given
    values = metric.value(sums)
    thresholds = np.concatenate(
        [sorted_[:1], _between(sorted_[:-1], sorted_[1:]), sorted_[-1:] - 1]
    )
    possible = np.concatenate(
        [[True], sorted_[:-1] > sorted_[1:], [True]]
    )  # equal differences go together
    best = possible & (values >= values[possible].max() - 1e-12)
    return float(min(thresholds[best].tolist(), key=lambda threshold: (abs(threshold), threshold)))


def _between(high: Floats, low: Floats) -> Floats:
    middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)


def _log_softmax(scores: NDArray[np.float64]) -> Floats:
    shifted = scores - scores.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)
