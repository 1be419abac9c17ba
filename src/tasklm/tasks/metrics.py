"""The metrics of every kind: the contribution of each example to some sums, and the score of sums.

A resample of the examples is therefore a product of weights and statistics, without a second look
at the predictions.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasklm.errors import DataError, RecipeError
from tasklm.registry import nearest
from tasklm.tasks.base import Floats, Label

# gold, predicted → (examples, numbers)
Count = Callable[[Sequence[Label], Sequence[Label]], Floats]
# sums (…, numbers) → scores (…)
Value = Callable[[Floats], Floats]
# right, gold, predicted: (…, classes) → (…)
FromCounts = Callable[[Floats, Floats, Floats], Floats]
# head (0: the root, else the number of a word from 1 on), relation
Dependency = Sequence[int | str]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass
class SummedMetric:
    """A metric made of what to count for each example and of the formula for the sums; fills
    `tasklm.tasks.base.Metric`.
    """

    name: str
    count: Count
    formula: Value

    def statistics(self, gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        """An array (examples, numbers): the contribution of each example to the sums."""
        if len(gold) != len(predicted):
            raise ValueError(f"{len(gold)} labels, but {len(predicted)} predictions")
        if not len(gold):
            raise DataError(
                "there are no examples to score",
                remedy="Give a dev or test file with at least one labelled example.",
            )
        return self.count(gold, predicted)

    def value(self, sums: Floats) -> Floats:
        """The score, as a share of 1, for sums of shape (…, numbers): an array of shape (…)."""
        return self.formula(np.asarray(sums, np.float64))


def _chosen(name: str, metrics: Mapping[str, tuple[Count, Value]]) -> SummedMetric:
    if name not in metrics:
        known = list(metrics)
        problem = f"evaluate.metric: there is no {name!r} for this task{nearest(name, known)}"
        raise RecipeError([f"{problem}; choose from {', '.join(known)}"])
    return SummedMetric(name, *metrics[name])


def _ratio(part: Floats, whole: Floats) -> Floats:
    """The ratio part / whole, 0 for an empty whole."""
    return np.divide(
        part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0
    )


def _share(sums: Floats) -> Floats:
    """The first sum as a share of the second."""
    return _ratio(sums[..., 0], sums[..., 1])


def _per_example(points: Iterable[float]) -> Floats:
    """The statistics of a mean over examples."""
    values = np.fromiter(points, np.float64)
    return np.stack([values, np.ones_like(values)], axis=1)


def _equal(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
    return _per_example(one == other for one, other in zip(gold, predicted, strict=True))


# Right, gold and predicted: counts for each class, of which accuracy, F1 and Matthews' coefficient
# follow.


def _from_counts(formula: FromCounts) -> Value:
    def of_sums(sums: Floats) -> Floats:
        right, gold, predicted = np.split(sums, 3, axis=-1)
        return formula(right, gold, predicted)

    return of_sums


def _micro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    return _ratio(2 * right.sum(-1), gold.sum(-1) + predicted.sum(-1))


def _macro_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    # as scikit-learn: a class that is neither in gold nor predicted has no F1 to average
    present = gold + predicted > 0
    return _ratio(_ratio(2 * right, gold + predicted).sum(-1), present.sum(-1).astype(np.float64))


def _weighted_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    return _ratio((gold * _ratio(2 * right, gold + predicted)).sum(-1), gold.sum(-1))


def _matthews(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    """The coefficient for any number of classes (Gorodkin 2004), 0 where gold or predictions are of
    one class.
    """
    examples = gold.sum(-1)
    together = right.sum(-1) * examples - (gold * predicted).sum(-1)
    spread = (examples**2 - (gold**2).sum(-1)) * (examples**2 - (predicted**2).sum(-1))
    return _ratio(together, np.sqrt(spread))


def _last_f1(right: Floats, gold: Floats, predicted: Floats) -> Floats:
    return _ratio(2 * right[..., -1], gold[..., -1] + predicted[..., -1])


def _numbers(labels: Sequence[Label], classes: Sequence[str]) -> list[int]:
    number = {label: i for i, label in enumerate(classes)}
    if strange := set(labels) - number.keys():
        raise ValueError(f"{min(map(repr, strange))} is none of the {len(classes)} labels")
    return [number[label] for label in labels]


_MEAN, _MICRO, _MACRO = _share, _from_counts(_micro_f1), _from_counts(_macro_f1)


def class_metric(name: str, labels: Sequence[str]) -> SummedMetric:
    """A metric of class names.

    `f1` is that of the positive class, the last of two by name; `matthews` takes any number.
    """
    classes = sorted(labels)

    def counts(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        marks = np.zeros((len(gold), 3, len(classes)))
        rows = np.arange(len(gold))
        marks[rows, 1, _numbers(gold, classes)] = 1
        marks[rows, 2, _numbers(predicted, classes)] = 1
        marks[:, 0] = marks[:, 1] * marks[:, 2]
        return marks.reshape(len(gold), -1)

    metrics: dict[str, tuple[Count, Value]] = {
        "accuracy": (_equal, _MEAN),
        # with one class per example precision and recall are the same
        "micro_f1": (_equal, _MEAN),
        "macro_f1": (counts, _MACRO),
        "weighted_f1": (counts, _from_counts(_weighted_f1)),
        "matthews": (counts, _from_counts(_matthews)),
    }
    if len(classes) == 2:
        metrics["f1"] = (counts, _from_counts(_last_f1))
    elif name == "f1":
        problem = f"evaluate.metric = 'f1' needs two labels, the task has {len(classes)}"
        raise RecipeError([f"{problem}; choose macro_f1 or micro_f1"])
    return _chosen(name, metrics)


def option_metric(name: str) -> SummedMetric:
    """The accuracy of numbers of options."""
    return _chosen(name, {"accuracy": (_equal, _MEAN)})


def label_set_metric(name: str, labels: Sequence[str]) -> SummedMetric:
    """A metric of collections of label names; `accuracy` is the share of examples whose whole set
    is right.

    Gold labels outside `labels` count as missed; for macro_f1 all of them together are one class.
    """
    number = {label: i for i, label in enumerate(labels)}

    def marked(sets: Sequence[Collection[str]]) -> Floats:
        marks = np.zeros((len(sets), len(labels) + 1))
        for row, names in enumerate(sets):
            for label in set(names):
                marks[row, number.get(label, len(labels))] += 1
        return marks

    def counts(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        ours, theirs = marked(gold), marked(predicted)
        if theirs[:, -1].any():
            raise ValueError("a predicted label is none of the task's")
        return np.concatenate([np.minimum(ours, theirs), ours, theirs], axis=1)

    def equal(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        return _equal([set(names) for names in gold], [set(names) for names in predicted])

    return _chosen(
        name,
        {"micro_f1": (counts, _MICRO), "macro_f1": (counts, _MACRO), "accuracy": (equal, _MEAN)},
    )


# Numbers


def ranks(values: NDArray[np.float64]) -> Floats:
    """The ranks from 1 on; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place], np.float64)


def _moments(one: Floats, other: Floats) -> Floats:
    return np.stack([np.ones_like(one), one, other, one * other, one * one, other * other], axis=1)


def _standard(values: Sequence[Label] | Floats) -> Floats:
    """The values moved to mean 0 and spread 1, which changes no correlation but keeps the
    differences of sums exact.
    """
    array = np.asarray(values, np.float64)
    moved = array - array.mean()
    return np.asarray(moved / (moved.std() or 1.0), np.float64)


def _correlation(sums: Floats) -> Floats:
    """Pearson's correlation, 0 if one side does not vary."""
    n, x, y, xy, xx, yy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    # less is rounding: all values are the same
    varies = (spread_x > 1e-12 * n * xx) & (spread_y > 1e-12 * n * yy)
    return _ratio(n * xy - x * y, np.where(varies, np.sqrt(np.maximum(spread_x * spread_y, 0)), 0))


def number_metric(name: str) -> SummedMetric:
    """A correlation of numbers.

    `spearman` is Pearson's correlation of the ranks in the whole set. It is exact for the whole
    set; in a resample the ranks would be others, so that values of resamples are approximate.
    """

    def pearson(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        return _moments(_standard(gold), _standard(predicted))

    def spearman(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        ours, theirs = (ranks(np.asarray(part, np.float64)) for part in (gold, predicted))
        return _moments(_standard(ours), _standard(theirs))

    return _chosen(name, {"spearman": (spearman, _correlation), "pearson": (pearson, _correlation)})


# Tags of words


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The (type, begin, end) of entities in BIO or BIOES tags, as conlleval reads them.

    I- and E- begin an entity where none of their type is open: at the start, after O, after E- or
    S-, and where the type changes.
    """
    spans, begin, before, kind_before = set(), 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        begins = mark != "O" and (
            mark in ("B", "S") or before in ("O", "E", "S") or kind != kind_before
        )
        if before != "O" and (begins or mark == "O"):
            spans.add((kind_before, begin, place))
        if begins:
            begin = place
        before, kind_before = mark, kind
    return spans


def _entity_counts(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
    counts = np.zeros((len(gold), 3))
    for row, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        _same_length(ours, theirs)
        right, guessed = entities(ours), entities(theirs)
        counts[row] = len(right & guessed), len(right), len(guessed)
    return counts


def _same_length(gold: Sequence[object], predicted: Sequence[object]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"an example of {len(gold)} words has predictions for {len(predicted)}")


def _tags_right(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
    counts = np.zeros((len(gold), 2))
    for row, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        _same_length(ours, theirs)
        counts[row] = sum(map(str.__eq__, ours, theirs)), len(ours)
    return counts


def tag_metric(name: str) -> SummedMetric:
    """A metric of lists of tags, one per word: F1 of the entities (conlleval), or the share of
    right tags.
    """
    return _chosen(name, {"entity_f1": (_entity_counts, _MICRO), "accuracy": (_tags_right, _MEAN)})


# Answers that are pieces of text


def _plain(text: str) -> str:
    """The answer as SQuAD's official script compares it: lower case, no punctuation, no articles,
    single spaces.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _word_f1(gold: str, predicted: str) -> float:
    ours, theirs = gold.split(), predicted.split()
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))


def _best_answer(score: Callable[[str, str], float]) -> Count:
    def count(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        points = []
        for texts, answer in zip(gold, predicted, strict=True):
            right = [plain for plain in map(_plain, texts) if plain]
            right = right or [""]  # SQuAD 2.0: no answer is right if there is none
            points.append(max(score(one, _plain(answer)) for one in right))
        return _per_example(points)

    return count


def answer_metric(name: str) -> SummedMetric:
    """A metric of answers by SQuAD's official rules; gold is a list of texts (empty: there is no
    answer), an answer a text.
    """
    metrics = {
        "answer_f1": (_best_answer(_word_f1), _MEAN),
        "exact_match": (_best_answer(str.__eq__), _MEAN),
    }
    return _chosen(name, metrics)


# Dependency trees


def tree_metric(name: str, punctuation: bool = False) -> SummedMetric:
    """The share of words with the right head (`uas`), or the right head and relation (`las`).

    Labels are lists of (head, relation). Without `punctuation`, words whose gold relation is
    `punct`, as Universal Dependencies has it, are not counted.
    """

    def counted(parts: int) -> Count:
        def count(gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
            counts = np.zeros((len(gold), 2))
            for row, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
                _same_length(ours, theirs)
                words = [
                    pair
                    for pair in zip(ours, theirs, strict=True)
                    if punctuation or not _is_punctuation(pair[0])
                ]
                counts[row] = (
                    sum(tuple(one[:parts]) == tuple(other[:parts]) for one, other in words),
                    len(words),
                )
            return counts

        return count

    return _chosen(name, {"las": (counted(2), _MEAN), "uas": (counted(1), _MEAN)})


def _is_punctuation(word: Dependency) -> bool:
    return str(word[1]).partition(":")[0] == "punct"
