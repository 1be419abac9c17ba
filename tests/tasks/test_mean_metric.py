"""The mean of several tasks' metrics against means computed by hand, also for resampled sums."""

from __future__ import annotations

import warnings
from itertools import chain

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score

from tasklm.evaluate.intervals import Predicted, Resampling
from tasklm.evaluate.scores import RowInputs, make_row
from tasklm.tasks.base import Label, score
from tasklm.tasks.classify import Classify
from tasklm.tasks.mean_metric import MeanMetric
from tasklm.tasks.regress import Regress
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag

GOLD = {"nli": ["a", "b", "b", "a", "b"], "score": [1.0, 2.0, 4.0, 3.0], "pos": [["N", "V"], ["N"]]}
GIVEN = {
    "nli": ["a", "b", "a", "a", "a"],
    "score": [1.5, 1.0, 3.0, 3.5],
    "pos": [["N", "N"], ["N"]],
}
ORDER = ["nli", "score", "nli", "pos", "nli", "score", "nli", "score", "nli", "pos", "score"]


def several() -> Several:
    tasks = {"nli": Classify(["a", "b"]), "score": Regress(0, 5), "pos": Tag(["N", "V"], "plain")}
    return Several(tasks, {"nli": "macro_f1", "score": "spearman", "pos": "accuracy"})


def in_order(labels: dict[str, list[Label]], names: list[str]) -> list[Label]:
    """The labels of the tasks as pairs, in the order of the names."""
    rest = {name: iter(own) for name, own in labels.items()}
    return [(name, next(rest[name])) for name in names]


def by_hand(places: list[int]) -> float:
    """The mean over the tasks that have an example at some places."""
    gold, given = in_order(GOLD, ORDER), in_order(GIVEN, ORDER)
    pairs = {name: [p for p in places if ORDER[p] == name] for name in GOLD}
    values = []
    if own := pairs["nli"]:
        labels = [gold[p][1] for p in own], [given[p][1] for p in own]
        values.append(f1_score(*labels, average="macro"))
    if own := pairs["score"]:
        # ranks are those of all examples, as for every resampled correlation
        everywhere = [p for p in range(len(ORDER)) if ORDER[p] == "score"]
        ranks = [np.argsort(np.argsort([side[p][1] for p in everywhere])) for side in (gold, given)]
        here = [everywhere.index(p) for p in own]
        one, two = (rank[here] for rank in ranks)
        constant = len(set(one)) == 1 or len(set(two)) == 1
        values.append(0.0 if constant else float(np.corrcoef(one, two)[0, 1]))
    if own := pairs["pos"]:
        words = [list(chain.from_iterable(side[p][1] for p in own)) for side in (gold, given)]
        values.append(accuracy_score(*words))
    return float(np.mean(values))


def test_it_is_the_mean_of_the_tasks_scores() -> None:
    gold, given = in_order(GOLD, ORDER), in_order(GIVEN, ORDER)
    expected = np.mean(
        [
            f1_score(GOLD["nli"], GIVEN["nli"], average="macro"),
            spearmanr(GOLD["score"], GIVEN["score"]).statistic,
            2 / 3,
        ]
    )
    assert score(several().metric("mean"), gold, given) == pytest.approx(expected)
    assert by_hand(list(range(len(ORDER)))) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_resampled_sums_are_those_of_the_resampled_examples(seed: int) -> None:
    metric = several().metric("mean")
    statistics = metric.statistics(in_order(GOLD, ORDER), in_order(GIVEN, ORDER))
    draw = np.random.default_rng(seed)
    size = 3 if seed % 2 else len(ORDER)  # some have no example of a task
    drawn = draw.integers(0, len(ORDER), (4, size))
    weights = np.stack([np.bincount(row, minlength=len(ORDER)) for row in drawn])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = metric.value(weights @ statistics)
    np.testing.assert_allclose(values, [by_hand(row.tolist()) for row in drawn], atol=1e-9)


def test_a_task_without_test_examples_does_not_count() -> None:
    names = [name for name in ORDER if name != "score"]
    metric = several().metric("mean")
    expected = (f1_score(GOLD["nli"], GIVEN["nli"], average="macro") + 2 / 3) / 2
    for _ in range(2):  # also after examples of all tasks were scored
        assert score(metric, in_order(GOLD, names), in_order(GIVEN, names)) == pytest.approx(
            expected
        )
        score(metric, in_order(GOLD, ORDER), in_order(GIVEN, ORDER))


def test_no_example_at_all_has_no_score() -> None:
    metric = MeanMetric("mean", {"nli": Classify(["a", "b"]).metric("accuracy")})
    metric.statistics([("nli", "a")], [("nli", "a")])
    assert float(metric.value(np.zeros(3 * 2 + 1))) == 0.0


def test_rows_have_the_scores_of_their_tasks() -> None:
    names = [name for name in ORDER if name != "score"]
    dev = Predicted(in_order(GOLD, ORDER), [in_order(GIVEN, ORDER), in_order(GOLD, ORDER)])
    test = Predicted(in_order(GOLD, names), [in_order(GIVEN, names), in_order(GOLD, names)])
    inputs = RowInputs("ours", "ours", several(), "mean", dev, test, resampling=Resampling(200))
    row = make_row(inputs)
    assert row.dev is not None and row.test is not None and row.test.low is not None
    assert row.dev.values[1] == pytest.approx(1.0) and row.test.values[1] == pytest.approx(1.0)
    assert [one.name for one in row.tasks] == list(GOLD)
    for seed in range(2):
        own = [one.dev.values[seed] for one in row.tasks if one.dev is not None]
        assert row.dev.values[seed] == pytest.approx(np.mean(own))
        scored = [one.test.values[seed] for one in row.tasks if one.test is not None]
        assert len(scored) == 2 and row.test.values[seed] == pytest.approx(np.mean(scored))
    assert row.tasks[1].test is None
