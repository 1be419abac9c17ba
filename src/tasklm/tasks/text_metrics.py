"""BLEU and chrF as sums over examples, equal to sacrebleu's (Post, arXiv 1804.08771)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from tasklm.errors import RecipeError
from tasklm.registry import nearest
from tasklm.tasks.base import Floats, Label
from tasklm.tasks.metrics import SummedMetric

METRICS = ("bleu", "chrf", "bleu_tokenised")
ORDER = 4  # of the n-grams of words that BLEU counts …
CHARACTERS = 6  # … and of the characters that chrF counts
BETA2 = 4.0  # chrF's recall counts twice, squared
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_SPLIT = (  # mteval-v13a: marks, then points and commas and dashes beside digits
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def tokenised(text: str) -> list[str]:
    """The words and marks of a text as BLEU's usual tokeniser (13a) splits them."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in _ENTITIES:
        text = text.replace(entity, sign)
    text = f" {text} "
    for pattern, replacement in _SPLIT:
        text = pattern.sub(replacement, text)
    return text.split()


def text_metric(name: str) -> SummedMetric:
    """The named metric of texts; a gold label has one right text or several."""
    metrics: dict[str, tuple[Callable[[str, Sequence[str]], list[float]], Callable[..., Floats]]]
    metrics = {
        "bleu": (lambda text, right: _bleu_counts(text, right, tokenised), _bleu),
        "chrf": (_chrf_counts, _chrf),
        "bleu_tokenised": (lambda text, right: _bleu_counts(text, right, str.split), _bleu),
    }
    if name not in metrics:
        known = f"{', '.join(metrics)}{nearest(name, list(metrics))}"
        raise RecipeError([f"evaluate.metric = {name!r}: the metrics of texts are {known}"])
    counts, formula = metrics[name]

    def count(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        pairs = zip(predicted, gold, strict=True)
        return np.array([counts(text, right) for text, right in pairs], np.float64)

    return SummedMetric(name, count, formula)


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[first:] for first in range(order)), strict=False))


def _bleu_counts(text: str, right: Sequence[str], split: Callable[[str], list[str]]) -> list[float]:
    """The right n-grams of each order, all of each order, and both lengths: ten numbers."""
    own, others = split(text), [split(one) for one in right]
    hits, totals = [], []
    for order in range(1, ORDER + 1):
        most: Counter[tuple[str, ...]] = Counter()
        for other in others:
            most |= _ngrams(other, order)
        ours = _ngrams(own, order)
        hits.append(sum((ours & most).values()))
        totals.append(sum(ours.values()))
    length = min((abs(len(other) - len(own)), len(other)) for other in others)[1]
    return [*hits, *totals, len(own), length]


def _bleu(sums: Floats) -> Floats:
    """The geometric mean of the shares of right n-grams, less for texts that are too short; an
    order without a right one counts for half of the one before (exponential smoothing).
    """
    flat = sums.reshape(-1, 2 * ORDER + 2)
    return np.array([_bleu_of(row) for row in flat]).reshape(sums.shape[:-1])


def _bleu_of(row: Floats) -> float:
    hits, totals, (own, right) = row[:ORDER], row[ORDER : 2 * ORDER], row[2 * ORDER :]
    if not hits.any() or not totals.all():
        return 0.0
    halved, logs = 1.0, 0.0
    for hit, total in zip(hits, totals, strict=True):
        if hit == 0:
            halved *= 2
            hit = 1 / halved
        logs += math.log(hit / total)
    brevity = min(0.0, 1.0 - right / own)
    return math.exp(brevity + logs / ORDER)


def _chrf_counts(text: str, right: Sequence[str]) -> list[float]:
    """Of each order the n-grams of the text, those of the right one, and those in common: 18
    numbers; of several right texts those of the best.
    """
    rows = [_chrf_of(text, one) for one in right]
    return max(rows, key=lambda row: float(_chrf(np.array(row, np.float64))))


def _chrf_of(text: str, right: str) -> list[float]:
    own, other = "".join(text.split()), "".join(right.split())
    row: list[float] = []
    for order in range(1, CHARACTERS + 1):
        ours, theirs = _ngrams(own, order), _ngrams(other, order)
        counted = sum(ours.values()) if theirs else 0
        row += [counted, sum(theirs.values()), sum((ours & theirs).values())]
    return row


def _chrf(sums: Floats) -> Floats:
    """The F score, with recall counted twice, of the mean precision and the mean recall over the
    orders that both sides have.
    """
    own, other, both = (sums[..., part::3] for part in range(3))
    there = (own > 0) & (other > 0)
    orders = np.maximum(there.sum(-1), 1)
    precision = np.divide(both, own, out=np.zeros_like(both), where=there).sum(-1) / orders
    recall = np.divide(both, other, out=np.zeros_like(both), where=there).sum(-1) / orders
    whole = BETA2 * precision + recall
    scores: Floats = np.zeros_like(whole)
    np.divide((1 + BETA2) * precision * recall, whole, out=scores, where=whole > 0)
    return scores
