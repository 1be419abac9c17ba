"""The linear model of words and their neighbours: its features by hand, its passes beside NumPy's,
and what it learns.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.errors import RunError
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import TaskModel
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import score
from tasklm.tasks.baselines import wide_fitting, word_features
from tasklm.tasks.baselines.tag_fitting import RATE, RATE_OF_OFFSETS, fit_linear
from tasklm.tasks.baselines.wide import labels_by
from tasklm.tasks.baselines.word_features import BEGIN, END, WordFeatures
from tasklm.tasks.examples import Example
from tasklm.tasks.tag import Tag
from tasklm.tokens.tokenizer import Vocabulary

NAMES = ["Anna", "Bert", "Clara", "Dora", "Emil", "Frida"]


def sentence(*words: str, tags: list[str] | None = None) -> Example:
    return Example((" ".join(words),), tags, words=words)


def sentences(count: int, seed: int) -> list[Example]:
    """Names are people after 'by', and places after 'in'."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(draw.randint(1, 4)):
            before = draw.choice(["by", "in", "or"])
            words += [before, draw.choice(NAMES)]
            tags += ["O", {"by": "B-PER", "in": "B-LOC", "or": "O"}[before]]
        rows.append(sentence(*words, tags=tags))
    return rows


def test_features_of_a_word_by_hand() -> None:
    (first, second) = word_features._features(["In", "BC-12"], {}, {})
    assert first == [
        "W In",
        "w in",
        "s Xx",
        "b I",
        "b In",
        "b In",
        "b In",
        "e n",
        "e In",
        "e In",
        "e In",
        f"p {BEGIN}",
        "n bc-12",
        f"pw {BEGIN} in",
        "wn in bc-12",
        f"pp {BEGIN}",
        f"nn {END}",
        f"sp {BEGIN}",
        "sn X-0",
        f"sss {BEGIN} Xx X-0",
    ]
    assert (
        second[:3] == ["W BC-12", "w bc-12", "s X-0"] and "e C-12" in second and "b BC-1" in second
    )
    assert "p in" in second and f"n {END}" in second and f"sss Xx X-0 {END}" in second


def test_rare_features_are_left_out_and_every_word_has_a_row() -> None:
    train = [sentence("a", "b"), sentence("a", "c"), sentence()]
    features = WordFeatures.fit(train, False, 1000)
    assert (
        "w a" in features.tokens
        and "w b" not in features.tokens
        and features.tokens == sorted(features.tokens)
    )
    assert features.counts(train) == [2, 2, 1]
    matrix = features.parts(train)["context"]
    assert (
        matrix.shape == (5, len(features.tokens))
        and not matrix[4].nnz
        and set(matrix.data) == {1.0}
    )
    assert len(WordFeatures.fit(train, False, 3).tokens) == 3
    fitted, parts = WordFeatures.fit_parts(train, False, 1000)
    assert (parts["context"] != fitted.parts(train)["context"]).nnz == 0
    assert features.counts([Example(("a b c",), None)]) == [3]  # text that is split here


def test_a_pass_is_adagrad_as_numpy_computes_it() -> None:
    from scipy.sparse import csr_matrix

    draw = np.random.default_rng(3)
    dense = (draw.random((40, 12)) < 0.3).astype(np.float64)
    tags = draw.integers(-1, 3, 40)
    model = fit_linear(csr_matrix(dense), tags, 3, epochs=2)
    weights, squares, offsets = np.zeros((12, 3)), np.ones((12, 3)), np.zeros(3)
    order, rows = np.random.default_rng(0), np.flatnonzero(tags >= 0)
    for _ in range(2):
        for row in order.permutation(rows):
            odds = np.exp(offsets + dense[row] @ weights)
            errors = odds / odds.sum() - np.eye(3)[tags[row]]
            offsets -= RATE_OF_OFFSETS * errors
            gradient = np.outer(dense[row], errors)
            squares += gradient**2
            weights -= RATE * gradient / np.sqrt(squares)
    np.testing.assert_allclose(model.weights, weights, atol=1e-12)
    np.testing.assert_allclose(model.offsets, offsets, atol=1e-12)


def test_it_learns_what_the_word_before_says_and_judges_train_out_of_fold() -> None:
    train, dev = sentences(200, 1), sentences(60, 2)
    task = Tag.from_examples(train, Kind())
    fitted = task.fit_wide(train, dev, "entity_f1")
    assert fitted is not None
    labels = labels_by(fitted.wide, task, {"dev": dev})["dev"]
    assert score(task.metric("entity_f1"), [example.label for example in dev], labels) == 1.0
    assert fitted.train.shape == (sum(len(example.words) for example in train), 3)
    own = fitted.wide.outputs(train)
    assert (
        np.abs(fitted.train - own).max() > 0.1
        and (fitted.train.argmax(1) == own.argmax(1)).mean() > 0.95
    )
    names = task.baselines(train, {"dev": dev}, "entity_f1", fitted.wide)
    assert list(names) == ["majority", "most frequent tag of the word", "words around + linear"]


def test_of_many_words_some_sentences_are_read_and_all_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wide_fitting, "MOST_TAGGED", 300)
    train = sentences(200, 1)
    fitted = Tag.from_examples(train, Kind()).fit_wide(train, train[:9], "entity_f1")
    assert fitted is not None and len(fitted.train) == sum(len(example.words) for example in train)
    gold = np.array(
        [["B-LOC", "B-PER", "O"].index(tag) for example in train for tag in example.label]
    )
    assert (fitted.train.argmax(1) == gold).mean() > 0.9


def test_there_is_none_beside_a_crf_or_with_one_tag() -> None:
    train = sentences(20, 1)
    assert Tag.from_examples(train, Kind(crf=True)).fit_wide(train, train, "entity_f1") is None
    alone = [sentence("a", "b", tags=["O", "O"])] * 5
    assert Tag.from_examples(alone, Kind()).fit_wide(alone, alone, "accuracy") is None


def test_a_model_adds_it_to_each_word_padded_and_packed_alike(vocabulary: Vocabulary) -> None:
    train = [
        *sentences(40, 1),
        sentence("by", *(["Anna"] * 30), tags=["O"] * 31),
    ]  # the last one is cut into rows
    task = Tag.from_examples(train, Kind())
    fitted = task.fit_wide(train, train, "entity_f1")
    assert fitted is not None
    torch.manual_seed(0)
    encoder = Bert(Shape(len(vocabulary), 1, 16, 2, 32, 24))
    head = task.head(16, 0.0, encoder.normed_heads)
    head.silence()
    model = TaskModel(encoder, head, wide=True).eval()
    some = [*train[:5], train[-1]]
    examples = encoded_with(fitted.wide, task, some, vocabulary, 24)
    assert len(examples.units) > len(some)
    rows = torch.from_numpy(fitted.wide.outputs(some))
    groups = np.arange(len(examples))
    padded, packed = examples.padded(groups), examples.packed(groups, 2, 48)
    places = [len(unit.places) for unit in examples.units]
    outputs = model(padded)
    torch.testing.assert_close(
        torch.cat([outputs[row, :count] for row, count in enumerate(places)]), rows
    )
    laid = model(packed)
    assert packed.targets is not None
    of_words = laid[packed.targets >= 0]
    torch.testing.assert_close(of_words.sort(0)[0], rows.sort(0)[0])


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    WordFeatures(["w a"], False).save(tmp_path)
    assert WordFeatures.load(tmp_path).tokens == ["w a"]
    (tmp_path / "words.json").write_text('{"format": 9}')
    with pytest.raises(RunError, match="format 9"):
        WordFeatures.load(tmp_path)
