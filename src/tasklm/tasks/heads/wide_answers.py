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

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.compiling import compiled_when_called
from tasklm.tasks.base import Floats
from tasklm.tasks.heads.answer_search import OF_NETWORK, OUTPUTS

LONGEST = 20  # words of an answer
BEFORE = 1 + LONGEST  # rows of an example before those of its words
POINTS = 3  # of a word: as the first one, as the last one, as one of an answer
FLOOR = -12.0
LEAST = math.exp(FLOOR)  # probability of an answer
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
    outputs = np.zeros((len(spans), OUTPUTS), np.float32)
    _spread(rows, *places_of_words(words, spans), outputs, LONGEST, OF_NETWORK)
    return outputs


def places_of_words(words: Bounds, spans: Bounds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


@compiled_when_called
def _spread(rows: Any, begins: Any, ends: Any, outputs: Any, longest: int, column: int) -> None:
    """Fills outputs with the logarithms of probabilities; the wide part's vectors begin at
    `column`. Plain loops: whole arrays would take far longer to compile.
    """
    words, axes = len(begins), (outputs.shape[1] - column) // 2
    finish, own, rest = column + axes, 1 + longest, axes - 1
    odds, starts, stops = np.zeros((words, longest)), np.zeros(words), np.zeros(words)
    highest = rows[0, 0]
    for first in range(words):
        inside = 0.0
        for more in range(min(longest, words - first)):
            last = own + first + more
            inside += rows[last, 2]
            odds[first, more] = rows[own + first, 0] + rows[last, 1] + inside + rows[1 + more, 0]
            highest = max(highest, odds[first, more])
    none = total = math.exp(rows[0, 0] - highest)
    for first in range(words):
        for more in range(min(longest, words - first)):
            odds[first, more] = math.exp(odds[first, more] - highest)
            starts[first] += odds[first, more]
            stops[first + more] += odds[first, more]
        total += starts[first]
        none += starts[first] * (begins[first] == 0)
    for place in range(len(outputs)):
        outputs[place, 0], outputs[place, column + rest] = FLOOR, 1.0
        for axis in range(axes):
            outputs[place, finish + axis] = FLOOR
    outputs[0, 0] = math.log(max(LEAST, none / total))
    outputs[0, column], outputs[0, column + rest], outputs[0, finish] = 1.0, 0.0, 0.0
    for word in range(words):
        if begins[word]:
            outputs[begins[word], 0] = math.log(max(LEAST, starts[word] / total))
        if ends[word]:
            outputs[ends[word], finish + rest] = math.log(max(LEAST, stops[word] / total))
    for axis in range(1, rest):
        best, most = -1, 0.0
        for first in range(words):
            if begins[first] and starts[first] > most:
                best, most = first, starts[first]
        if best < 0:
            break
        outputs[begins[best], column + rest], outputs[begins[best], column + axis] = 0.0, 1.0
        for more in range(min(longest, words - best)):
            if ends[best + more]:
                share = math.log(max(LEAST, odds[best, more] / most))
                outputs[ends[best + more], finish + axis] = share
        starts[best] = 0.0
