"""The loss of a span head against what teachers say of answers, and how they say it.

A student's tokens and windows need not be the teacher's: teachers speak of words. Each place of a
window has the probability that an answer begins there; and for each of the likeliest starts the
same once more, alone, and the probability that its answer ends there. [CLS] has what lies outside
the window, and "no answer".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasklm.tasks.base import NONE, Floats
from tasklm.tasks.heads.answer_search import AXES, OF_NETWORK, RANK
from tasklm.tasks.heads.wide_answers import Bounds, places_of_words

if TYPE_CHECKING:
    from torch import Tensor

LIKELIEST = 4  # starts whose ends are taught
WIDTH = 1 + 2 * LIKELIEST
HIDDEN = -1e30  # score of padding: finite, so that a row of padding alone gives no NaN


def end_scores(outputs: Tensor, starts: Tensor) -> Tensor:
    """The scores (rows, places) of each place as the end of an answer.

    `starts` (rows, places) has a 1 at the place where it begins. Sums of products, not matrix
    products: autocast leaves these in fp32.
    """
    at = starts.unsqueeze(-1)
    begin = (at * outputs[..., 2 : 2 + RANK]).sum(-2, keepdim=True)
    axis = (at * outputs[..., OF_NETWORK : OF_NETWORK + AXES]).sum(-2, keepdim=True)
    of_network = (outputs[..., 2 + RANK : OF_NETWORK] * begin).sum(-1) / math.sqrt(RANK)
    of_wide = (outputs[..., OF_NETWORK + AXES :] * axis).sum(-1)
    return of_network + outputs[..., 1] + of_wide


def soft_answer_loss(outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of starts, and of ends given [CLS] and the likeliest starts, summed over
    the rows that have targets.
    """
    outputs, taught = outputs.float(), taught.float()
    padding = targets[..., 0] == NONE
    holds = (targets[..., 0] == 1).any(-1)
    logs = outputs[..., 0].masked_fill(padding, HIDDEN).log_softmax(-1)
    losses = -(taught[..., 0] * logs).sum(-1)
    at_cls = taught.new_zeros(taught.shape[:-1])
    at_cls[..., 0] = 1.0
    axes = [(at_cls * taught[..., 0], at_cls)]
    axes += [(taught[..., one], taught[..., LIKELIEST + one]) for one in range(1, 1 + LIKELIEST)]
    for marks, ends in axes:
        share = marks.sum(-1)
        starts = marks / share.clamp(min=1e-30).unsqueeze(-1)
        logs = end_scores(outputs, starts).masked_fill(padding, HIDDEN).log_softmax(-1)
        losses = losses - share * (ends * logs).sum(-1)
    return losses.masked_fill(~holds, 0.0).sum()


def window_lesson(rows: Floats, words: Bounds, spans: Bounds) -> NDArray[np.float32]:
    """What teachers say of a text's words as what they say of the places of a window."""
    begins, ends = places_of_words(words, spans)
    lesson = np.zeros((len(spans), WIDTH))
    likeliest = set()
    for one in range(1, 1 + LIKELIEST):
        start = int(rows[:, one].argmax())
        share = rows[start, one]
        if not share:
            continue
        likeliest.add(start)
        of_ends = rows[1:, LIKELIEST + one] * (ends > 0)
        place, inside = begins[start - 1], of_ends.sum()
        if place and inside:
            lesson[place, 0] += share * inside
            lesson[place, one] = share * inside
            np.add.at(lesson[:, LIKELIEST + one], ends, of_ends / inside)
    others = [word for word in np.flatnonzero(rows[1:, 0]) if 1 + word not in likeliest]
    for word in others:
        lesson[begins[word], 0] += rows[1 + word, 0] * (begins[word] > 0)
    lesson[0, 0] = max(0.0, 1.0 - lesson[1:, 0].sum())
    return lesson.astype(np.float32)
