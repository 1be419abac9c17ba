"""The baselines: strong where counting words is enough, chosen on dev only, clear where there is nothing to count."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from tasklm.errors import DataError
from tasklm.tasks import linear
from tasklm.tasks.base import score
from tasklm.tasks.examples import Example
from tasklm.tasks.linear import STRENGTHS, LinearBaseline, majority
from tasklm.tasks.scoring import class_metric
from tasklm.tasks.tfidf import features


def tfidf_linear(train: list[Example], dev: list[Example], test: list[Example], metric: str) -> LinearBaseline:
    labels = sorted({example.label for example in (*train, *dev)}, key=str)
    return linear.tfidf_linear(train, dev, test, class_metric(metric, labels))


def examples(pairs: list[tuple[str, str]]) -> list[Example]:
    return [Example((text,), label) for text, label in pairs]


def topics(count: int, seed: int, words: dict[str, list[str]]) -> list[Example]:
    draw = random.Random(seed)
    filler = [f"w{number}" for number in range(40)]
    made = []
    for _ in range(count):
        label = draw.choice(list(words))
        text = [*draw.choices(filler, k=8), draw.choice(words[label])]
        draw.shuffle(text)
        made.append((" ".join(text), label))
    return examples(made)


ENGLISH = {"ships": ["harbour", "anchor", "sail"], "food": ["butter", "bread", "salt"], "law": ["court", "judge", "statute"]}


def plain_fit(matrix: Any, classes: Any, c: float, weight: str | None) -> Any:
    one = LogisticRegression(C=c, class_weight=weight, solver="liblinear", dual=True, tol=0.01, max_iter=1000, random_state=0)
    return OneVsRestClassifier(one).fit(matrix, classes)


def test_majority_takes_the_most_frequent_and_breaks_ties_by_name() -> None:
    assert majority(examples([("x", "a"), ("y", "b"), ("z", "b")]), ["1", "2"]) == ["b", "b"]
    assert majority(examples([("x", "b"), ("y", "a")]), ["1"]) == ["a"]
    with pytest.raises(DataError, match="no training examples"):
        majority([], ["1"])


def test_linear_learns_topics_and_reports_its_choice() -> None:
    train, dev, test = topics(90, 1, ENGLISH), topics(40, 2, ENGLISH), topics(60, 3, ENGLISH)
    result = tfidf_linear(train, dev, test, "macro_f1")
    right = np.mean([guess == example.label for guess, example in zip(result.test, test, strict=True)])
    assert right > 0.9
    assert len(result.dev) == 40
    assert result.c in STRENGTHS
    assert result.dev_score is not None and result.dev_score > 0.9
    assert tfidf_linear(train, dev, test, "macro_f1") == result


def test_characters_carry_unseen_word_forms_of_any_script() -> None:
    train = examples([("дом домов", "house"), ("кошка кошки", "cat"), ("дома домик", "house"), ("кошкой кошек", "cat")])
    test = examples([("домам", "house"), ("кошкам", "cat")])  # neither word stands in train
    assert tfidf_linear(train, train, test, "accuracy").test == ["house", "cat"]


def test_test_labels_change_nothing() -> None:
    train, dev, test = topics(40, 1, ENGLISH), topics(20, 2, ENGLISH), topics(20, 3, ENGLISH)
    hidden = [Example(example.texts, "food") for example in test]
    assert tfidf_linear(train, dev, test, "accuracy") == tfidf_linear(train, dev, hidden, "accuracy")


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy"])
def test_the_choice_is_the_first_that_is_best_on_dev(metric: str) -> None:
    words = {"common": ["alpha", "both"], "rare": ["omega", "both"]}  # half of the texts tell nothing, so weights matter
    train = [e for e in topics(150, 4, words) if e.label == "common"]
    train += [e for e in topics(60, 5, words) if e.label == "rare"][:15]
    dev = topics(60, 6, words)
    of_train, of_dev = features(train, dev) or []
    is_rare = np.array([e.label == "rare" for e in train]).astype(int)
    gold, chosen = [e.label for e in dev], class_metric(metric, ["common", "rare"])
    scored = {}
    for weight in (None, "balanced"):
        for c in STRENGTHS:
            found = plain_fit(of_train, is_rare, c, weight).predict(of_dev)
            scored[c, weight] = score(chosen, gold, [("common", "rare")[number] for number in found])
    result = tfidf_linear(train, dev, [], metric)
    assert len(set(scored.values())) > 3
    assert (result.c, result.class_weight) == max(scored, key=lambda choice: scored[choice])
    assert result.dev_score == max(scored.values())
    assert result.test == []


@pytest.mark.parametrize(
    "train",
    [
        [("", "a"), ("", "b"), ("  ", "b")],  # no text at all
        [("one text", "b"), ("another text", "b")],  # one class
    ],
)
def test_where_nothing_can_be_learned_it_is_the_majority(train: list[tuple[str, str]]) -> None:
    result = tfidf_linear(examples(train), examples([("some", "a")]), examples([("text", "b"), ("x", "a")]), "accuracy")
    assert (result.dev, result.test, result.c) == (["b"], ["b", "b"], None)


def test_texts_without_words_still_have_characters() -> None:
    train = examples([("!! ??", "a"), ("++ --", "b")] * 3)
    assert tfidf_linear(train, train, examples([("!!", "a"), ("++", "b")]), "accuracy").test == ["a", "b"]


def test_no_dev_and_unseen_dev_labels_are_no_obstacle() -> None:
    train = topics(30, 1, ENGLISH)
    without = tfidf_linear(train, [], train, "accuracy")
    assert (without.c, without.class_weight, without.dev_score, without.dev) == (1.0, None, None, [])
    strange = tfidf_linear(train, [*train, Example(("harbour",), "unheard of")], [], "accuracy")
    assert strange.dev_score is not None and strange.dev_score < 1


@pytest.mark.parametrize("worth", [1, 1 << 40])  # a process of their own for some fits, and none
def test_the_predictions_are_those_of_plain_one_against_the_rest(monkeypatch: pytest.MonkeyPatch, worth: int) -> None:
    monkeypatch.setattr(linear, "_WORTH_A_PROCESS", worth)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    vague = {name: [*words, "both", "either"] for name, words in ENGLISH.items()}
    train, dev, test = topics(60, 1, vague), topics(40, 2, vague), topics(200, 3, vague)
    result = tfidf_linear(train, dev, test, "macro_f1")
    of_train, of_test = features(train, test) or []
    assert result.c is not None
    expected = plain_fit(of_train, np.array([example.label for example in train]), result.c, result.class_weight)
    assert result.test == expected.predict(of_test).tolist()


def test_merged_features_keep_every_product_of_examples() -> None:
    train, test = topics(50, 1, ENGLISH), topics(30, 2, ENGLISH)
    plain = features(train, test) or []
    merged = linear._without_multiples(*plain)
    assert merged[0].shape[1] < plain[0].shape[1] / 2
    for some, fewer in zip(plain, merged, strict=True):
        np.testing.assert_allclose((fewer @ merged[0].T).toarray(), (some @ plain[0].T).toarray(), atol=1e-12)


def test_a_word_that_train_has_only_in_the_other_text_of_a_pair_is_no_obstacle() -> None:
    draw = random.Random(1)
    words = [f"w{number}" for number in range(30)]

    def pairs(count: int, second: list[str]) -> list[Example]:
        drawn = [(draw.choices(words, k=5), draw.choices(second, k=5)) for _ in range(count)]
        return [Example((" ".join(one), " ".join(other)), "yes" if set(one) & set(other) else "no") for one, other in drawn]

    train, dev = pairs(60, words[:10]), pairs(30, words)  # most words stand in the first text alone there, and in both here
    result = tfidf_linear(train, dev, dev, "accuracy")
    assert result.c is not None and result.dev == result.test and set(result.dev) <= {"yes", "no"}
