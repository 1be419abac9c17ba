"""What a linear model of answers says, in the form of a span head's outputs.

Of an example it gives rows of three numbers: one for "no answer", one for each length of an answer,
one for each word of the text. An answer has as many points as

    start(first word) + end(last word) + the sum of inside(word) + length(its number of words)

and a softmax over all answers and "no answer" makes probabilities of them. A head's places are
tokens, of a part of the text perhaps. So a place where a word begins has the probability that an
answer begins there. For the likeliest starts, each of which has an axis of its own, a place where a
word ends has the probability that the answer ends there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import Floats
from tasklm.tasks.heads.answer_search import AXES, BEAM, OF_NETWORK, OUTPUTS

LONGEST = 20  # words of an answer
BEFORE = 1 + LONGEST  # rows of an example before those of its words
POINTS = 3  # of a word: as the first one, as the last one, as one of an answer
FLOOR = -12.0  # logarithm of the least probability
Bounds = NDArray[np.int32]


def answer_logs(rows: Floats) -> tuple[float, Floats]:
    """The logarithms of the probabilities of "no answer" and of answers, (words, LONGEST), by first
    word and length.
    """
    own = rows[BEFORE:]
    words = len(own)
    last = np.arange(words)[:, None] + np.arange(LONGEST)
    there = last < words
    last = np.minimum(last, words - 1)
    inside = np.concatenate([[0.0], np.cumsum(own[:, 2])])
    points = own[:, :1] + own[last, 1] + inside[last + 1] - inside[:-1, None] + rows[1:BEFORE, 0]
    points = np.where(there, points, -np.inf)
    highest = max(float(rows[0, 0]), float(points.max(initial=-np.inf)))
    total = highest + np.log(np.exp(rows[0, 0] - highest) + np.exp(points - highest).sum())
    return float(rows[0, 0] - total), points - total


def wide_outputs(rows: Floats, words: Bounds, spans: Bounds) -> NDArray[np.float32]:
    """What is added to a head's outputs, (places, OUTPUTS): `words` and `spans` say which
    characters the words of the text and the places stand for.

    Place 0, [CLS], has the probability of no answer, or of one that begins elsewhere.
    """
    none, logs = answer_logs(rows)
    starts = _sums(logs, 1)
    begins, ends = _places(words, spans)
    outputs = np.zeros((len(spans), OUTPUTS), np.float32)
    outputs[:, 0] = FLOOR
    inside = np.flatnonzero(begins)
    outputs[begins[inside], 0] = np.maximum(starts[inside], FLOOR)
    elsewhere = np.exp(np.delete(starts, inside)).sum()
    outputs[0, 0] = max(FLOOR, np.log(np.exp(none) + elsewhere + 1e-300))
    best = inside[np.argsort(-starts[inside], kind="stable")[:BEAM]]  # words
    axes = np.full(len(spans), AXES - 1)
    axes[0], axes[begins[best]] = 0, 1 + np.arange(len(best))
    outputs[np.arange(len(spans)), OF_NETWORK + axes] = 1.0
    finish = np.full((len(spans), AXES), FLOOR)
    finish[0, 0] = 0.0
    rest, closed = AXES - 1, np.flatnonzero(ends)
    finish[ends[closed], rest] = np.maximum(_of_ends(logs)[closed], FLOOR)
    last = best[:, None] + np.arange(LONGEST)
    there = ends[np.minimum(last, len(words) - 1)] * (last < len(words))
    start, length = np.nonzero(there)
    given = logs[best[start], length] - starts[best[start]]
    finish[there[start, length], 1 + start] = np.maximum(given, FLOOR)
    outputs[:, OF_NETWORK + AXES :] = finish
    return outputs


def _places(words: Bounds, spans: Bounds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in which each word begins and ends; 0 where none of them does."""
    begins, ends = np.zeros(len(words), np.int64), np.zeros(len(words), np.int64)
    place = np.arange(1, len(spans))
    low, high = spans[1:, 0], spans[1:, 1]
    first = np.searchsorted(words[:, 0], low)
    some = first < np.searchsorted(words[:, 0], high)
    begins[first[some]] = place[some]
    last = np.searchsorted(words[:, 1], high, side="right") - 1
    some = last >= np.searchsorted(words[:, 1], low, side="right")
    ends[last[some]] = place[some]
    return begins, ends


def _sums(logs: Floats, axis: int) -> Floats:
    """Logarithms of the sums of probabilities."""
    highest = np.maximum(logs.max(axis, initial=-np.inf, keepdims=True), -1e30)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - highest).sum(axis)) + highest.squeeze(axis))


def _of_ends(logs: Floats) -> Floats:
    """The logarithm of the probability that each word is an answer's last one."""
    words = len(logs)
    last = np.arange(words)[:, None] + np.arange(LONGEST)
    sums = np.bincount(last.ravel(), np.exp(logs).ravel(), words + LONGEST)[:words]
    return np.log(np.maximum(sums, 1e-300))
