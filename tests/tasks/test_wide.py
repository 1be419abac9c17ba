"""The wide part of a model: what the baseline answers, out of fold for train, saved and checked."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from tests.tasks.fitted import fitted_baselines
from tests.tasks.test_linear import ENGLISH, topics
from tests.tasks.wide_samples import labelled, task_of

from tasklm.errors import RunError
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.baselines import linear, wide
from tasklm.tasks.baselines.featuriser import joined
from tasklm.tasks.baselines.linear import TOLERANCE, USUAL, Trainer, choose_classes
from tasklm.tasks.baselines.option_features import OptionFeatures
from tasklm.tasks.baselines.option_words import MEASURES, Evidence, best_window, stem_weights
from tasklm.tasks.baselines.wide import EDGE, Wide, labels_by, outputs_of
from tasklm.tasks.baselines.wide_fitting import FOLDS, OptionTrainer, fit_classes, folds_of
from tasklm.tasks.choice import Choice
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.regress import Regress


@pytest.mark.parametrize("kind", ["classify", "multilabel"])
def test_by_itself_it_answers_what_scikit_learn_answers(kind: str) -> None:
    train, test = labelled(kind, 80, 1), labelled(kind, 40, 3)
    task = task_of(kind, train)
    fitted = task.fit_wide(train, (), task.metrics[0])  # without dev: the usual setting
    assert fitted.train.shape == (80, 3) and fitted.train.dtype == np.float32
    features = fitted.wide.features
    parts = [joined(list(features.parts(part).values())) for part in (train, test)]
    wanted = np.array(
        [[label in task.classes(example.label) for label in task.labels] for example in train]
    )
    peer = OneVsRestClassifier(LinearSVC(C=USUAL, tol=TOLERANCE, random_state=0)).fit(
        parts[0], wanted
    )
    np.testing.assert_allclose(
        fitted.wide.decisions(test), peer.decision_function(parts[1]), atol=1e-4
    )
    by_hand = peer.decision_function(parts[1]) if kind == "classify" else fitted.wide.outputs(test)
    answered = labels_by(fitted.wide, task, {"test": test})["test"]
    if kind == "classify":
        assert answered == [task.labels[best] for best in by_hand.argmax(1)]
    else:
        assert answered == [
            tuple(label for label, output in zip(task.labels, row, strict=True) if output >= 0)
            for row in by_hand
        ]


def test_scores_by_itself_are_those_of_ridge_regression_within_the_range_of_train() -> None:
    train = labelled("regress", 80, 1)
    dev = labelled("regress", 40, 2)
    test = labelled("regress", 40, 3)
    task = task_of("regress", train)
    fitted = task.fit_wide(train, dev, "spearman")
    scores = fitted_baselines(task, train, {"dev": dev, "test": test}, "spearman")[
        "TF-IDF + ridge"
    ]["test"]
    answered = labels_by(fitted.wide, task, {"test": test})["test"]
    np.testing.assert_allclose(answered, np.clip(scores, 2 * EDGE, 2 - 2 * EDGE), rtol=1e-5)


@pytest.mark.parametrize("kind", ["multilabel", "regress", "choice", "span"])
def test_a_single_training_example_is_no_obstacle(kind: str) -> None:
    train = labelled(kind, 1, 1)
    fitted = task_of(kind, train).fit_wide(train, train, task_of(kind, train).metrics[0])
    assert np.isfinite(fitted.train).all() and np.isfinite(fitted.wide.outputs(train)).all()


@pytest.mark.parametrize("kind", ["classify", "choice"])
def test_of_much_text_a_part_is_read_and_the_rest_is_judged_by_its_model(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = labelled(kind, 60, 1)
    monkeypatch.setattr(
        linear, "MOST_WORDS", sum(len(example.text.split()) for example in train) // 2
    )
    fitted = task_of(kind, train).fit_wide(train, train[:10], task_of(kind, train).metrics[0])
    places = linear.thinned_places(train)
    rest = [place for place in range(60) if place not in places]
    assert 20 < len(places) < 40
    outputs = fitted.wide.outputs([train[place] for place in rest])
    of_rest = fitted.train.reshape(60, -1)[rest]
    np.testing.assert_allclose(of_rest, outputs.reshape(len(rest), -1), atol=1e-6)


def test_two_classes_have_two_outputs() -> None:
    two = {name: ENGLISH[name] for name in ("food", "law")}
    train, dev = topics(60, 1, two), topics(30, 2, two)
    task = task_of("classify", train)
    fitted = task.fit_wide(train, dev, "macro_f1")
    assert fitted.train.shape == (60, 2)
    np.testing.assert_allclose(fitted.train.sum(1), 0, atol=1e-6)
    by_hand = [task.labels[int(decision > 0)] for (decision,) in fitted.wide.decisions(dev)]
    assert labels_by(fitted.wide, task, {"dev": dev})["dev"] == by_hand


def test_decisions_on_a_remembered_list_are_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = labelled("classify", 60, 1)
    task = task_of("classify", train)
    own = task.fit_wide(train, train, task.metrics[0]).wide
    dev = labelled("classify", 20, 2)
    expected = own.outputs(dev)
    own.remember(dev)
    computed: list[int] = []
    parts = own.features.parts

    def counted(examples: Sequence[Example]) -> Any:
        computed.append(len(examples))
        return parts(examples)

    monkeypatch.setattr(type(own.features), "parts", lambda self, examples: counted(examples))
    for _ in range(3):
        np.testing.assert_array_equal(own.outputs(dev), expected)
    assert computed == [20]
    own.outputs(list(dev))  # another list, which may be anything
    assert computed == [20, 20]
    monkeypatch.setattr(wide, "MOST_REMEMBERED", 8)
    other = replace(own)
    other.remember(dev)
    assert (other.outputs(dev) == expected).all() and (other.outputs(dev) == expected).all()
    assert computed == [20] * 4  # too large to remember


def test_train_is_judged_by_models_that_have_not_seen_it() -> None:
    draw = random.Random(0)
    train = [
        Example((" ".join(draw.choices("abcdefghijkl", k=6)),), draw.choice(("no", "yes", "maybe")))
        for _ in range(90)
    ]
    chosen = choose_classes(
        train, train[:30], Classify(["maybe", "no", "yes"]).metric("accuracy"), ()
    )
    assert chosen is not None
    fitted = fit_classes(chosen, train)
    labels = np.array([chosen.labels.index(example.label) for example in train])
    assert (fitted.wide.outputs(train).argmax(1) == labels).mean() > (
        fitted.train.argmax(1) == labels
    ).mean() + 0.1
    held = folds_of(len(train))[0]
    rest = [row for row in range(len(train)) if row not in held]
    part = Trainer(
        [train[row] for row in rest],
        np.array(rest),
        chosen.trainer.featuriser,
        chosen.trainer.featuriser.parts([train[row] for row in rest]),
    )
    alone = part.decisions(
        part.fit(chosen.targets[rest], chosen.setting), [train[row] for row in held]
    )
    np.testing.assert_allclose(
        fitted.train[held], outputs_of("classes", alone, fitted.wide.scale, 0.0), atol=1e-5
    )


def test_folds_part_all_rows_once_and_always_alike() -> None:
    parts = folds_of(23)
    assert len(parts) == FOLDS and sorted(np.concatenate(parts).tolist()) == list(range(23))
    assert all(np.array_equal(one, again) for one, again in zip(parts, folds_of(23), strict=True))
    assert len(folds_of(3)) == 3


def test_outputs_are_never_infinite() -> None:
    decisions = np.array([[np.inf], [-np.inf], [0.5]])
    for form in ("classes", "labels", "score"):
        assert np.isfinite(outputs_of(form, decisions, 2.0, 0.0)).all()
    share = 1 / (1 + np.exp(-outputs_of("score", np.array([[0.3]]), 1.0, 0.0)))
    np.testing.assert_allclose(share, 0.3, rtol=1e-6)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "choice", "tag", "span"])
def test_it_is_saved_and_read_again(kind: str, tmp_path: Path) -> None:
    train, others = labelled(kind, 60, 1), labelled(kind, 20, 4)
    task = task_of(kind, train)
    wide = task.fit_wide(train, labelled(kind, 30, 2), task.metrics[0]).wide
    wide.save(tmp_path)
    np.testing.assert_allclose(Wide.load(tmp_path).outputs(others), wide.outputs(others), atol=1e-5)
    assert len(wide.outputs([])) == 0


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("wide.json", {"form": "other"}, "unknown form 'other'"),
        ("wide.json", {"scale": float("nan")}, "not finite"),
        ("weights.safetensors", {"weights": np.zeros((3, 3), np.float32)}, "3 weights for"),
        (
            "weights.safetensors",
            {"offsets": np.zeros(1)},
            "does not contain the weights of a linear model",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, file: str, change: dict[str, Any], words: str
) -> None:
    train = labelled("classify", 60, 1)
    task_of("classify", train).fit_wide(train, train[:20], "macro_f1").wide.save(tmp_path)
    if file.endswith(".json"):
        (tmp_path / file).write_text(json.dumps(json.loads((tmp_path / file).read_text()) | change))
    else:
        (tmp_path / file).write_bytes(
            safetensors.numpy.save(safetensors.numpy.load_file(tmp_path / file) | change)
        )
    with pytest.raises(ValueError, match=words):
        Wide.load(tmp_path)


def test_where_nothing_can_be_learnt_there_is_none() -> None:
    one = [Example(("a text",), "a")] * 4
    assert Classify(["a"]).fit_wide(one, one, "accuracy") is None
    silent = [Example(("",), label) for label in ("a", "b")]
    assert Classify(["a", "b"]).fit_wide(silent, silent, "accuracy") is None
    assert Multilabel(["a"]).fit_wide([Example(("",), ("a",))] * 3, [], "micro_f1") is None
    assert Regress(0, 1).fit_wide([Example(("",), 1.0)] * 3, [], "spearman") is None


def test_weights_of_two_options_are_those_of_logistic_regression() -> None:
    """The softmax over two options is a logistic function of their difference."""
    train = [example for example in labelled("choice", 150, 1) if len(example.options) == 2]
    features = OptionFeatures.fit(train, 2)
    parts = features.parts(train)
    right = np.array([example.label for example in train])
    fitted = OptionTrainer(
        {**parts, "evidence": parts["evidence"] * 0}, np.full(len(train), 2), right, 2
    ).fit(np.arange(len(train)), 0.5)
    tokens = parts["tokens"].toarray()
    difference = tokens[1::2] - tokens[::2]
    peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-8, max_iter=2000).fit(
        difference, right
    )
    np.testing.assert_allclose(fitted.weights[MEASURES:, 0], peer.coef_[0], atol=0.02)


def test_evidence_of_an_option_by_hand() -> None:
    train = [
        Example(
            ("the cat sat. the dog ran home", "who ran ?", "cat", "dog"), 1, options=("cat", "dog")
        )
    ]
    train += [
        Example((f"filler {number}", "q", "a", "b"), 0, options=("a", "b")) for number in range(9)
    ]
    weights = stem_weights(train)
    measures = Evidence(weights).measures(train[0])
    assert measures.shape == (2, MEASURES)
    own = measures[:, : MEASURES // 3]
    assert own[:, 0].tolist() == [1.0, 1.0]  # both words are in the text
    assert (
        own[0, 10] == 0.0 and own[1, 10] == 1.0
    )  # the sentence that fits the question best has the dog
    weight = weights["dog"] + weights["ran"]
    assert own[1, 8] == pytest.approx(weight / (weight + weights.get("who", max(weights.values()))))
    np.testing.assert_allclose(measures[:, MEASURES // 3 : 2 * MEASURES // 3], own - own.max(0))
    assert best_window(np.array([1.0, 0, 2, 3, 0]), 2) == 5 and best_window(np.zeros(0), 3) == 0


def test_options_are_chosen_by_words_of_the_text() -> None:
    train, held = labelled("choice", 200, 1), labelled("choice", 60, 5)
    task = Choice.from_examples(train, Kind())
    fitted = task.fit_wide(train, labelled("choice", 40, 2), "accuracy")
    assert fitted.train.shape == (600, 1)
    chosen = labels_by(fitted.wide, task, {"test": held})["test"]
    assert np.mean([one == example.label for one, example in zip(chosen, held, strict=True)]) > 0.9
    assert (
        max(number - len(example.options) for number, example in zip(chosen, held, strict=True)) < 0
    )  # never one that is not there


@pytest.mark.parametrize("name", ["weights.safetensors", "features.safetensors", "features.json"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    train = labelled("classify", 60, 1)
    task_of("classify", train).fit_wide(train, train[:20], "macro_f1").wide.save(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises((OSError, RunError), match="named pipe"):
        Wide.load(tmp_path)
