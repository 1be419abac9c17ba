"""BLEU and chrF as sums over examples, beside sacrebleu."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tasklm.errors import RecipeError
from tasklm.evaluate.intervals import Predicted
from tasklm.tasks.text_metrics import METRICS, text_metric, tokenised

WORDS = [
    "the",
    "a",
    "man",
    "woman",
    ",",
    "runs",
    "over",
    "red",
    ".",
    "hill-side",
    "(two)",
    "3.5",
    "$5",
    "isn't",
    "dogs'",
    "play",
    "—",
    "ball",
]
ODD = [
    "It's 3.5, \"isn't\" it? don't-know & <b> 1990-2000 $5.00 (x) a/b",
    "日本語 の テキスト。",
    "x",
    "one\ntwo &amp; three-\nfour <skipped> ",
]


def texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))) for _ in range(count)]


def noisy(whole: list[str], seed: int) -> list[str]:
    draw = random.Random(seed)
    found = []
    for text in whole:
        words = [word if draw.random() > 0.3 else draw.choice(WORDS) for word in text.split()]
        found.append(" ".join(words[: draw.randint(0, 20)]))
    return found


def value(name: str, gold: list[tuple[str, ...]], predicted: list[str]) -> float:
    metric = text_metric(name)
    counts = metric.statistics(gold, predicted)
    assert counts.shape == (len(gold), 18 if name == "chrf" else 10)
    return float(metric.value(counts.sum(0)))


CASES = [
    ([(text,) for text in texts(60, 0)], noisy(texts(60, 0), 1)),
    ([(text,) for text in texts(3, 2)], noisy(texts(3, 2), 3)),
    ([(text,) for text in ODD], [ODD[0].replace("&", "&amp;"), "日本の テキスト。", "", "one two"]),
    ([(text,) for text in texts(4, 5)], ["", "", "", ""]),
    (
        [
            tuple(three)
            for three in zip(texts(40, 6), noisy(texts(40, 6), 7), texts(40, 8), strict=True)
        ],
        noisy(texts(40, 6), 9),
    ),
]


# by sacrebleu 2.6.0, for those to whom it is not installed
KNOWN = [
    (0.330503974, 0.494275414, 0.293346559),
    (0.460305796, 0.529103549, 0.362664894),
    (0.850309777, 0.682917666, 0.45733057),
    (0.0, 0.0, 0.0),
    (0.350070393, 0.419569738, 0.262144278),
]


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_scores_are_the_known_ones(name: str, case: int) -> None:
    wanted = KNOWN[case][METRICS.index(name)]
    assert value(name, *CASES[case]) == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_scores_are_those_of_sacrebleu(name: str, case: int) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics")
    theirs = {
        "bleu": metrics.BLEU(force=True),
        "chrf": metrics.CHRF(),
        "bleu_tokenised": metrics.BLEU(tokenize="none", force=True),
    }[name]
    gold, predicted = CASES[case]
    by_reference = [list(one) for one in zip(*gold, strict=True)]
    wanted = theirs.corpus_score(predicted, by_reference).score / 100
    assert value(name, gold, predicted) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_right_texts_have_the_best_score(name: str) -> None:
    gold = [(text,) for text in texts(20, 1)]
    assert value(name, gold, [one for (one,) in gold]) == pytest.approx(1.0)
    assert value(name, gold, ["zz"] * 20) == 0.0


def test_a_score_is_a_function_of_sums() -> None:
    gold, predicted = CASES[0]
    metric = text_metric("bleu")
    counts = metric.statistics(gold, predicted)
    weights = np.random.default_rng(0).integers(0, 3, (5, len(gold)))
    resampled = metric.value(weights @ counts)
    for row, score in zip(weights, resampled, strict=True):
        chosen = np.repeat(np.arange(len(gold)), row)
        again = value("bleu", [gold[i] for i in chosen], [predicted[i] for i in chosen])
        assert score == pytest.approx(again)
    assert Predicted(gold, [predicted]).gold == gold


def test_words_and_marks_are_split_as_by_mteval() -> None:
    assert tokenised("It's 3.5, isn't it?") == ["It's", "3.5", ",", "isn't", "it", "?"]
    assert tokenised("a-b 1990-2000 &quot;x&quot;") == ["a-b", "1990", "-", "2000", '"', "x", '"']


def test_unknown_metrics_are_refused() -> None:
    with pytest.raises(RecipeError, match="the metrics of texts are bleu, chrf, bleu_tokenised"):
        text_metric("blue")
