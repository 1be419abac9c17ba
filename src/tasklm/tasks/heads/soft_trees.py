"""The loss of a parser against what teachers say of heads and relations, and how they say it.

The scores of all possible heads are many, and nearly all of them 0: of each word the likeliest are
kept, each as its place (0 is the root), its probability, and those of the relations to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasklm.tasks.base import Floats

if TYPE_CHECKING:
    from torch import Tensor

LIKELIEST = 4  # heads of a word


def width_of(relations: int) -> int:
    """How many numbers teachers have for a word."""
    return LIKELIEST * (2 + relations)


def soft_arcs(outputs: Floats) -> Floats:
    """The likeliest heads of each word, (words, LIKELIEST · (2 + relations)), from a head's outputs
    (places, places or more, 1 + relations).
    """
    places = len(outputs)
    outputs = outputs[:, :places]
    heads, relations = _softmax(outputs[1:, :, 0]), _softmax(outputs[1:, :, 1:])
    return _likeliest(heads, relations)


def mean_arcs(lessons: Sequence[Floats], relations: int) -> Floats:
    """The likeliest heads by the mean of several teachers' probabilities."""
    if len(lessons) == 1:
        return lessons[0]
    words = len(lessons[0])
    heads = np.zeros((words, 1 + words))
    joint = np.zeros((words, 1 + words, relations))
    word = np.arange(words)[:, None]
    for lesson in lessons:
        own = lesson.reshape(words, LIKELIEST, 2 + relations)
        at = own[:, :, 0].astype(np.int64)
        np.add.at(heads, (word, at), own[:, :, 1] / len(lessons))
        np.add.at(joint, (word, at), own[:, :, 1:2] * own[:, :, 2:] / len(lessons))
    given = joint / np.maximum(heads, 1e-30)[:, :, None]
    return _likeliest(heads, given)


def _likeliest(heads: Floats, relations: Floats) -> Floats:
    """Those of each word; fewer places than LIKELIEST are filled up with heads of probability 0."""
    words = len(heads)
    best = np.argsort(-heads, axis=1, kind="stable")[:, :LIKELIEST]
    rows = np.zeros((words, LIKELIEST, 2 + relations.shape[2]))
    word, count = np.arange(words)[:, None], best.shape[1]
    rows[:, :count, 0], rows[:, :count, 1] = best, heads[word, best]
    rows[:, :count, 2:] = relations[word, best]
    return rows.reshape(words, -1)


def _softmax(scores: Floats) -> Floats:
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(odds / odds.sum(-1, keepdims=True), np.float64)


def soft_arc_loss(outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of heads, and of relations at each head that teachers name by its
    probability, summed over the words that labels would teach, in fp32.
    """
    from tasklm.tasks.heads.biaffine import head_scores

    outputs = outputs.float()
    places, relations = outputs.shape[2], outputs.shape[3] - 1
    own = taught.float().view(*taught.shape[:-1], LIKELIEST, 2 + relations)
    heads, chances = own[..., 0].long(), own[..., 1]
    there = (heads < places) & (chances > 0) & (targets[..., :1] >= 0)
    heads, chances = heads.clamp(max=places - 1), chances.masked_fill(~there, 0.0)
    head_logs = head_scores(outputs, targets[..., 0]).log_softmax(-1).gather(2, heads)
    at = heads.unsqueeze(-1).expand(-1, -1, -1, relations)
    relation_logs = outputs[..., 1:].gather(2, at).log_softmax(-1)
    logs = head_logs + (own[..., 2:] * relation_logs).sum(-1)
    return -(chances * logs).masked_fill(~there, 0.0).sum()
