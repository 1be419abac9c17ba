"""The baselines: strong where counting words is enough, chosen on dev only, clear where nothing
counts.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from tasklm.errors import DataError
from tasklm.storage.scratch import scratch_of_process
from tasklm.tasks.base import Label
from tasklm.tasks.baselines import linear
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.baselines.linear import (
    STRENGTHS,
    USUAL,
    Setting,
    Trainer,
    best_of,
    choose_classes,
    majority,
    thinned,
)
from tasklm.tasks.baselines.wide_fitting import fit_classes
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.metrics import class_metric

ENGLISH = {
    "ships": ["harbour", "anchor", "sail"],
    "food": ["butter", "bread", "salt"],
    "law": ["court", "judge", "statute"],
}
VAGUE = {name: [*words, "both", "either"] for name, words in ENGLISH.items()}


@dataclass(frozen=True)
class Predicted:
    """What the linear model of a classifier predicts, and how it was chosen."""

    labels: dict[str, list[Label]]
    setting: Setting | None  # None: the majority stands in
    dev_score: float | None


def tfidf_linear(
    train: list[Example],
    held: dict[str, list[Example]],
    metric: str = "accuracy",
    marks: Sequence[str] = (),
) -> Predicted:
    known = sorted(
        {
            str(example.label)
            for part in (train, *held.values())
            for example in part
            if example.label is not None
        }
    )
    chosen = choose_classes(train, held.get("dev", ()), class_metric(metric, known), marks)
    task = Classify(sorted({str(example.label) for example in train}), marks)
    wide = None if chosen is None else fit_classes(chosen, train).wide
    labels = task.baselines(train, held, metric, wide)["TF-IDF + linear"]
    return Predicted(
        labels,
        None if chosen is None else chosen.setting,
        None if chosen is None else chosen.dev_score,
    )


def examples(pairs: list[tuple[str, str]]) -> list[Example]:
    return [Example((text,), label) for text, label in pairs]


def topics(count: int, seed: int, words: dict[str, list[str]]) -> list[Example]:
    draw = random.Random(seed)
    filler = [f"w{number}" for number in range(40)]
    drawn = []
    for _ in range(count):
        label = draw.choice(list(words))
        text = [*draw.choices(filler, k=8), draw.choice(words[label])]
        draw.shuffle(text)
        drawn.append((" ".join(text), label))
    return examples(drawn)


def gold(part: list[Example]) -> list[str]:
    return [example.label for example in part]


def test_majority_takes_the_most_frequent_and_breaks_ties_by_name() -> None:
    assert majority(examples([("x", "a"), ("y", "b"), ("z", "b")]), ["1", "2"]) == ["b", "b"]
    assert majority(examples([("x", "b"), ("y", "a")]), ["1"]) == ["a"]
    with pytest.raises(DataError, match="no training examples"):
        majority([], ["1"])
    with pytest.raises(DataError, match="no training examples"):
        tfidf_linear([], {"dev": examples([("x", "a")])})


def test_linear_learns_topics_and_reports_its_choice() -> None:
    train = topics(90, 1, ENGLISH)
    held = {"dev": topics(40, 2, ENGLISH), "test": topics(60, 3, ENGLISH)}
    result = tfidf_linear(train, held, "macro_f1")
    assert (
        np.mean(
            [
                guess == label
                for guess, label in zip(result.labels["test"], gold(held["test"]), strict=True)
            ]
        )
        > 0.9
    )
    assert len(result.labels["dev"]) == 40
    assert result.setting is not None and result.setting.strength in STRENGTHS
    assert result.dev_score is not None and result.dev_score > 0.9


RUN_AGAIN = """
import json, sys
from tests.tasks.test_linear import VAGUE, tfidf_linear, topics
result = tfidf_linear(topics(60, 1, VAGUE), {"dev": topics(40, 2, VAGUE), "test": topics(80, 3, VAGUE)}, "macro_f1")
print(json.dumps([result.labels, str(result.setting), result.dev_score]))
"""


def test_another_process_with_another_hash_seed_predicts_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", RUN_AGAIN], capture_output=True, text=True, check=True
            ).stdout
        )
    assert outputs[0] == outputs[1] and len(json.loads(outputs[0])[0]["test"]) == 80


@pytest.mark.parametrize("weight", [None, "balanced", "half"])
@pytest.mark.parametrize("view", [("words",), ("letters",), ("words", "letters")])
def test_a_fit_is_that_of_scikit_learn(
    monkeypatch: pytest.MonkeyPatch, view: tuple[str, ...], weight: str | None
) -> None:
    monkeypatch.setattr(linear, "TOLERANCE", 1e-8)
    train, test = topics(60, 1, VAGUE)[10:], topics(50, 2, VAGUE)
    texts = [[example.text for example in part] for part in (train, test)]
    vectorizers = {
        "words": TfidfVectorizer(
            sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b"
        ),
        "letters": TfidfVectorizer(
            sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5), min_df=2
        ),
    }
    matrices = [
        hstack([vectorizers[name].fit(texts[0]).transform(part) for name in view], format="csr")
        for part in texts
    ]
    machine = LinearSVC(
        C=3.0,
        class_weight=None if weight is None else "balanced",
        tol=1e-8,
        max_iter=100_000,
        random_state=0,
    )
    expected = OneVsRestClassifier(machine) if weight == "half" else machine
    expected.fit(matrices[0], gold(train))
    trainer = Trainer.of(train)
    targets = np.array([[label == name for name in sorted(ENGLISH)] for label in gold(train)])
    model = trainer.fit(targets, Setting(view, 3.0, weight))
    np.testing.assert_allclose(
        trainer.decisions(model, test), expected.decision_function(matrices[1]), atol=1e-4
    )


@pytest.mark.parametrize("worth", [1, 1 << 40])  # a process of their own for some fits, and none
def test_the_predictions_do_not_depend_on_processes_or_batches(
    monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    train, held = topics(60, 1, VAGUE), {"dev": topics(40, 2, VAGUE), "test": topics(200, 3, VAGUE)}
    usual = tfidf_linear(train, held, "macro_f1")
    monkeypatch.setattr(linear, "_WORTH_A_PROCESS", worth)
    monkeypatch.setattr(linear, "AT_ONCE", 7)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert tfidf_linear(train, held, "macro_f1") == usual


def test_what_processes_share_is_in_a_folder_that_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    matrix = csr_matrix(np.ones((500, 500)))  # smaller ones are sent as they are
    fit = linear.Fit(Setting(("words",), USUAL), matrix, np.zeros(500, np.bool_), 1, None)
    files = linear.each_of(lambda fit: fit.matrix.data.filename, [fit, fit])
    assert all(str(scratch_of_process().folder) in file for file in files)


def test_characters_carry_unseen_word_forms_of_any_script() -> None:
    train = examples(
        [
            ("дом домов", "house"),
            ("кошка кошки", "cat"),
            ("дома домик", "house"),
            ("кошкой кошек", "cat"),
        ]
    )
    test = examples([("домам", "house"), ("кошкам", "cat")])  # neither word stands in train
    assert tfidf_linear(train, {"dev": test, "test": test}).labels["test"] == ["house", "cat"]


def test_test_changes_nothing_and_its_labels_are_not_read() -> None:
    train, dev, test = topics(40, 1, VAGUE), topics(20, 2, VAGUE), topics(20, 3, VAGUE)
    whole = tfidf_linear(train, {"dev": dev, "test": test})
    hidden = [Example(example.texts, None) for example in test]
    assert tfidf_linear(train, {"dev": dev, "test": hidden}) == whole
    without = tfidf_linear(train, {"dev": dev})
    assert (without.labels["dev"], without.setting) == (whole.labels["dev"], whole.setting)


def test_dev_chooses_what_rare_classes_weigh() -> None:
    words = {
        "common": ["alpha", "both"],
        "rare": ["omega", "both"],
    }  # half of the texts tell nothing
    train = [example for example in topics(150, 4, words) if example.label == "common"]
    train += [example for example in topics(60, 5, words) if example.label == "rare"][:15]
    chosen = {}
    for label in words:
        dev = [Example((f"both w{number}",), label) for number in range(30)]
        result = tfidf_linear(train, {"dev": dev})
        assert result.setting is not None
        chosen[label] = result.setting.class_weight
    assert chosen == {"common": None, "rare": "balanced"}


def settings(*strengths: float, view: str = "words") -> list[Setting]:
    return [Setting((view,), strength) for strength in strengths]


def test_strengths_are_tried_in_both_directions_while_they_are_better() -> None:
    scores = {0.01: 0.9, 0.03: 0.1, 0.1: 0.2, 0.3: 0.5, 1.0: 0.6, 3.0: 0.7, 10.0: 0.7}
    judged: list[Setting] = []

    def judge(some: Sequence[Setting]) -> list[float]:
        judged.extend(some)
        return [scores[one.strength] - (0.3 if one.view == ("letters",) else 0.0) for one in some]

    first = [*settings(USUAL, view="letters"), *settings(USUAL)]
    assert best_of(first, STRENGTHS, judge) == (
        Setting(("words",), 3.0),
        0.7,
    )  # of equal ones the earliest
    assert judged == [*first, *settings(0.1, 1.0, 3.0, 10.0)]  # none below 0.1, which was worse


@pytest.mark.parametrize(
    "train",
    [
        [("", "a"), ("", "b"), ("  ", "b")],  # no text at all
        [("one text", "b"), ("another text", "b")],  # one class
    ],
)
def test_where_nothing_can_be_learned_it_is_the_majority(train: list[tuple[str, str]]) -> None:
    held = {"dev": examples([("some", "a")]), "test": examples([("text", "b"), ("x", "a")])}
    result = tfidf_linear(examples(train), held)
    assert (result.labels, result.setting) == ({"dev": ["b"], "test": ["b", "b"]}, None)


def test_four_examples_some_of_them_empty_are_enough() -> None:
    train = examples([("yes indeed", "a"), ("no", "b"), ("", "a"), ("no, no", "b")])
    result = tfidf_linear(train, {"dev": train[:2], "test": examples([("no", "b"), ("", "a")])})
    assert result.labels["dev"] == ["a", "b"] and result.labels["test"][0] == "b"


def test_texts_without_words_still_have_characters() -> None:
    train = examples([("!! ??", "a"), ("++ --", "b")] * 3)
    assert tfidf_linear(train, {"dev": train, "test": examples([("!!", "a"), ("++", "b")])}).labels[
        "test"
    ] == ["a", "b"]


def test_no_dev_and_unseen_dev_labels_are_no_obstacle() -> None:
    train = topics(30, 1, ENGLISH)
    without = tfidf_linear(train, {"test": train})
    assert (without.setting, without.dev_score) == (Setting(("words", "letters"), USUAL), None)
    strange = tfidf_linear(
        train, {"dev": [*train, Example(("harbour",), "unheard of")], "test": []}
    )
    assert strange.dev_score is not None and strange.dev_score < 1
    assert strange.labels["test"] == [] and "unheard of" not in strange.labels["dev"]


MARKED = ("<< {one} >> binds [[ {other} ]] well", "[[ {one} ]] binds << {other} >> well")


def marked(count: int, seed: int) -> list[Example]:
    """Texts of the same words, with the marks around the first and the last of them or the other
    way round.
    """
    draw, names = random.Random(seed), [f"n{number}" for number in range(30)]
    drawn = [(number % 2, draw.sample(names, 2)) for number in range(count)]
    return [
        Example((MARKED[way].format(one=one, other=other),), "ab"[way])
        for way, (one, other) in drawn
    ]


@pytest.mark.parametrize("marks", [(), ("<<", "[[")])  # they are seen where nobody names them too
def test_marks_tell_texts_of_the_same_words_apart(marks: tuple[str, ...]) -> None:
    train, test = marked(40, 1), marked(20, 2)
    result = tfidf_linear(train, {"dev": marked(20, 3), "test": test}, marks=marks)
    assert result.labels["test"] == gold(test)
    assert result.setting is not None and "marks" in result.setting.view


def test_marks_of_pairs_count_as_well() -> None:
    train, dev, test = (
        [Example((*one.texts, "which of them"), one.label) for one in marked(40, seed)]
        for seed in (1, 2, 3)
    )
    result = tfidf_linear(train, {"dev": dev, "test": test})
    assert result.labels["test"] == gold(test)


def test_a_word_that_train_has_only_in_the_other_text_of_a_pair_is_no_obstacle() -> None:
    draw = random.Random(1)
    words = [f"w{number}" for number in range(30)]

    def pairs(count: int, second: list[str]) -> list[Example]:
        drawn = [(draw.choices(words, k=5), draw.choices(second, k=5)) for _ in range(count)]
        return [
            Example((" ".join(one), " ".join(other)), "yes" if set(one) & set(other) else "no")
            for one, other in drawn
        ]

    train, held = (
        pairs(60, words[:10]),
        pairs(30, words),
    )  # there most words stand in the first text alone
    result = tfidf_linear(train, {"dev": held, "test": held})
    assert result.labels["dev"] == result.labels["test"] == gold(held)


def test_many_words_are_thinned_evenly_whatever_separates_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "MOST_WORDS", 1000)
    for text in ("北京" * 100, "word " * 200):
        some = [Example((text,), str(number)) for number in range(9)]
        assert gold(thinned(some)) == ["0", "2", "4", "6", "8"]
        assert thinned(some[:5]) == some[:5]
    assert evenly(range(100), 3) == [0, 50, 99]
    assert evenly([], 3) == [] and evenly([1, 2], 0) == [1]


def test_large_data_is_bounded_and_still_predicted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in (
        ("MOST_WORDS", 300),
        ("CHOOSING", 2000),
        ("FITTING", 4000),
        ("MOST_DECISIONS", 30),
    ):
        monkeypatch.setattr(linear, name, bound)
    read = []
    fit = linear.Featuriser.fit_parts
    monkeypatch.setattr(
        linear.Featuriser,
        "fit_parts",
        lambda train, *rest: read.append(len(train)) or fit(train, *rest),
    )
    train, test = topics(200, 1, ENGLISH), topics(50, 2, ENGLISH)
    train[100] = Example(("once",), "a class that is left out")
    result = tfidf_linear(train, {"dev": topics(100, 3, ENGLISH), "test": test})
    assert read == [33]  # of 9 words each
    assert len(result.labels["dev"]) == 100 and set(result.labels["test"]) <= set(ENGLISH)


def test_views_are_compared_by_fits_to_the_same_examples() -> None:
    trainer = Trainer.of(topics(60, 1, ENGLISH))
    sizes = {view: sum(trainer.parts[name].nnz for name in view) for view in trainer.views}
    assert len(set(sizes.values())) > 1
    rows = linear.rows_for(trainer.parts, trainer.views, 3, max(sizes.values()))
    assert len(rows) == 20  # of the largest view a third has so many entries
    settings = [Setting(view, USUAL) for view in trainer.views]
    fits = linear.fits_of(trainer.parts, np.zeros((60, 3), bool), settings, rows)
    assert {fit.matrix.shape[0] for fit in fits} == {20} and len(fits) == 3 * len(settings)
