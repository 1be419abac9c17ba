"""The wide part of span tasks: probabilities of answers by definition, fitted as NumPy has it."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tests.tasks.test_wide import labelled

from tasklm.errors import RunError
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import Floats, score
from tasklm.tasks.baselines import answer_fitting
from tasklm.tasks.baselines.answer_features import AnswerFeatures, answer_rows
from tasklm.tasks.baselines.answer_fitting import (
    NO_ANSWER,
    RATE,
    TINY,
    UNKNOWN,
    fit_answers,
    gold_words,
)
from tasklm.tasks.baselines.answer_overlap import FAR, Batch, overlap_of
from tasklm.tasks.baselines.answer_words import (
    QuestionReader,
    asking_words,
    read_passage,
    shape_with_years,
    stem_weights,
)
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.answer_search import AXES, BEAM, OF_NETWORK, OUTPUTS, best_answers
from tasklm.tasks.heads.wide_answers import BEFORE, FLOOR, LONGEST, answer_logs, wide_outputs
from tasklm.tasks.span import Span


def span_task(train: list[Example]) -> Span:
    return Span.from_examples(train, Kind())


def points_of(rows: Floats, first: int, last: int) -> float:
    """The definition, one answer at a time."""
    own = rows[BEFORE:]
    inside = sum(own[word, 2] for word in range(first, last + 1))
    return float(own[first, 0] + own[last, 1] + inside + rows[1 + last - first, 0])


def chances(rows: Floats) -> tuple[float, dict[tuple[int, int], float]]:
    """The probabilities of no answer and of all answers, by first and last word."""
    words = len(rows) - BEFORE
    pairs = [
        (first, last)
        for first, last in itertools.product(range(words), repeat=2)
        if first <= last < first + LONGEST
    ]
    odds = {pair: math.exp(points_of(rows, *pair)) for pair in pairs}
    none = math.exp(rows[0, 0])
    total = none + sum(odds.values())
    return none / total, {pair: own / total for pair, own in odds.items()}


def drawn_rows(words: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(BEFORE + words, 3))


# probabilities


@pytest.mark.parametrize("words", [0, 1, 7, 30])
def test_probabilities_of_answers_are_those_of_the_definition(words: int) -> None:
    rows = drawn_rows(words, words)
    none, expected = chances(rows)
    log_none, logs = answer_logs(rows)
    assert log_none == pytest.approx(math.log(none)) and logs.shape == (words, LONGEST)
    for (first, last), chance in expected.items():
        assert logs[first, last - first] == pytest.approx(math.log(chance))
    assert np.exp(logs).sum() + none == pytest.approx(1)


def bounds_of(text: str) -> Any:
    return read_passage(text).bounds


def test_a_beam_finds_the_likeliest_answer_with_its_probability() -> None:
    text = " ".join(f"w{number}" for number in range(30))
    rows, words = drawn_rows(30, 4), bounds_of(text)
    rows[0, 0] = 4.0
    none, expected = chances(rows)
    spans = np.concatenate([np.zeros((1, 2), np.int32), words])
    outputs = wide_outputs(rows, words, spans).astype(np.float64)
    assert outputs.shape == (31, OUTPUTS) and not outputs[:, 1:OF_NETWORK].any()
    of_none, candidates = best_answers(outputs, BEAM, 30)
    assert of_none == pytest.approx(math.log(none), abs=1e-3)
    (first, last), chance = max(expected.items(), key=lambda entry: entry[1])
    assert candidates[0][:2] == (first + 1, last + 1)
    assert candidates[0][2] == pytest.approx(math.log(chance), abs=1e-3)


def test_pieces_of_words_begin_and_end_answers_only_where_words_do() -> None:
    """Two words, of two pieces each: an answer never begins with the second piece of a word."""
    text = "abcd efgh"
    rows, words = drawn_rows(2, 1), bounds_of(text)
    spans = np.array([[0, 0], [0, 2], [2, 4], [5, 7], [7, 9]], np.int32)
    outputs = wide_outputs(rows, words, spans)
    none, expected = chances(rows)
    starts = [none, expected[0, 0] + expected[0, 1], 0, expected[1, 1], 0]
    np.testing.assert_allclose(
        outputs[:, 0], [math.log(own) if own else FLOOR for own in starts], atol=1e-5
    )
    axis = outputs[1, OF_NETWORK : OF_NETWORK + AXES]
    ends = outputs[:, OF_NETWORK + AXES :] @ axis
    given = expected[0, 1] / (expected[0, 0] + expected[0, 1])
    wanted = [FLOOR, FLOOR, math.log(1 - given), FLOOR, math.log(given)]
    np.testing.assert_allclose(ends, wanted, atol=1e-5)


def test_a_window_gives_to_no_answer_what_begins_outside_it() -> None:
    text = "a b c d e f"
    rows, words = drawn_rows(6, 2), bounds_of(text)
    none, expected = chances(rows)
    spans = np.concatenate([np.zeros((1, 2), np.int32), words[2:4]])
    outputs = wide_outputs(rows, words, spans)
    outside = sum(own for (first, _), own in expected.items() if first not in (2, 3))
    assert outputs[0, 0] == pytest.approx(math.log(none + outside), abs=1e-5)
    inside = sum(own for (first, _), own in expected.items() if first == 3)
    assert outputs[2, 0] == pytest.approx(math.log(inside), abs=1e-5)


def test_starts_beyond_the_beam_share_the_likeliest_ends() -> None:
    text = " ".join(f"w{number}" for number in range(BEAM + 5))
    rows, words = drawn_rows(BEAM + 5, 3), bounds_of(text)
    spans = np.concatenate([np.zeros((1, 2), np.int32), words])
    outputs = wide_outputs(rows, words, spans)
    axes = outputs[:, OF_NETWORK : OF_NETWORK + AXES]
    assert (axes.sum(1) == 1).all() and axes[:, -1].sum() == 5 and axes[0, 0] == 1
    worst = 1 + np.argsort(outputs[1:, 0])[:5]
    assert axes[worst, -1].all()
    _, expected = chances(rows)
    ends = sum(own for (_, last), own in expected.items() if last == 9)
    assert outputs[10, -1] == pytest.approx(math.log(ends), abs=1e-5)


# fitting


def numpy_errors(points: Floats, gold: tuple[int, int]) -> Floats:
    """The gradient of minus the logarithm of an answer's probability, by the definition."""
    none, odds = chances(points)
    errors = np.zeros_like(points)
    errors[0, 0] = none - (gold[0] == NO_ANSWER)
    for (first, last), chance in odds.items():
        error = chance - ((first, last) == gold)
        errors[1 + last - first, 0] += error
        errors[BEFORE + first, 0] += error
        errors[BEFORE + last, 1] += error
        errors[BEFORE + first : BEFORE + last + 1, 2] += error
    return errors


def test_a_pass_is_adagrad_as_numpy_computes_it() -> None:
    from scipy.sparse import csr_matrix

    draw = np.random.default_rng(3)
    counts = np.array([5, 1, 26, 8, 4]) + BEFORE
    firsts = np.cumsum([0, *counts])
    dense = (draw.random((firsts[-1], 15)) < 0.3).astype(np.float64)
    gold = np.array([[1, 3], [0, 0], [4, 20], [NO_ANSWER, NO_ANSWER], [UNKNOWN, UNKNOWN]])
    model = fit_answers(csr_matrix(dense), firsts, gold, np.arange(5), epochs=2)
    weights, squares = np.zeros((15, 3)), np.ones((15, 3))
    order = np.random.default_rng(0)
    for _ in range(2):
        for example in order.permutation(4):
            rows = dense[firsts[example] : firsts[example + 1]]
            first, last = gold[example]
            errors = numpy_errors(rows @ weights, (int(first), int(last)))
            for row, error in zip(rows, errors, strict=True):
                if np.abs(error).max() >= TINY:
                    gradient = np.outer(row, error)
                    squares += gradient**2
                    weights -= RATE * gradient / np.sqrt(squares)
    np.testing.assert_allclose(model.weights, weights, atol=1e-12)
    assert not model.offsets.any() and np.abs(weights).max() > 0.05


def test_gold_words_are_those_that_the_answer_touches() -> None:
    text = "The Cold War ended in 1,991 ."
    long = " ".join("x" for _ in range(LONGEST + 1))
    examples = [
        Example(("when", text), [("1,991", text.index("1,991"))]),
        Example(("what", text), [("Cold War", 4)]),
        Example(("what", text), []),
        Example(("what", text), [("peace", -1)]),
        Example(("what", long), [(long, 0)]),
    ]
    assert gold_words(examples).tolist() == [
        [5, 5],
        [1, 2],
        [NO_ANSWER, NO_ANSWER],
        [UNKNOWN, UNKNOWN],
        [UNKNOWN, UNKNOWN],
    ]


def test_it_answers_what_a_question_names_and_judges_train_out_of_fold() -> None:
    train, dev = labelled("span", 240, 1), labelled("span", 60, 2)
    task = span_task(train)
    fitted = task.fit_wide(train, dev, "answer_f1")
    assert fitted is not None and fitted.train.dtype == np.float32
    assert fitted.train.shape == (sum(answer_rows(train)), 3)
    own = labels_by(fitted.wide, task, {"dev": dev})["dev"]
    reached = score(task.metric("exact_match"), [example.label for example in dev], own)
    names = task.baselines(train, {"dev": dev}, "answer_f1", fitted.wide)
    assert list(names) == ["majority", "best sentence", "words in common + linear"]
    best = score(
        task.metric("exact_match"),
        [example.label for example in dev],
        names["best sentence"]["dev"],
    )
    assert reached > 0.8 > best
    assert "" in own and names["words in common + linear"]["dev"] == own
    assert np.abs(fitted.train - fitted.wide.outputs(train)).max() > 0.05


def test_questions_on_one_text_are_held_out_together() -> None:
    train = [Example((f"q {number} ?", f"text {number // 4}"), []) for number in range(24)]
    for held in answer_fitting._folds(train):
        texts = {train[number].texts[1] for number in held}
        assert len(held) == 4 * len(texts)
    alone = [Example((f"q {number} ?", "one text"), []) for number in range(9)]
    assert sorted(np.concatenate(answer_fitting._folds(alone)).tolist()) == list(range(9))


def test_of_many_words_some_questions_are_read_and_all_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = labelled("span", 80, 1)
    monkeypatch.setattr(answer_fitting, "MOST_WORDS", 600)
    fitted = span_task(train).fit_wide(train, train[:9], "answer_f1")
    assert fitted is not None and 10 < len(fitted.refit.places) < 60
    outside = [number for number in range(80) if number not in set(fitted.refit.places.tolist())]
    ends = np.cumsum(answer_rows(train))
    rows = np.split(fitted.train, ends[:-1])
    judged = fitted.wide.outputs([train[number] for number in outside])
    np.testing.assert_allclose(np.concatenate([rows[one] for one in outside]), judged, atol=1e-5)


def test_without_an_answer_to_learn_from_there_is_none() -> None:
    silent = [Example((f"who {number} ?", "a text of words"), []) for number in range(20)]
    assert span_task(silent).fit_wide(silent, silent, "answer_f1") is None


# what it sees


def test_words_that_ask_are_found_in_any_language() -> None:
    train = [
        Example((f"Wer {verb} den Ball {number} ?", f"Anna {verb} den Ball {number} ."), [])
        for number in range(8)
        for verb in ("wirft", "fängt")
    ]
    assert asking_words(train)[0] == "wer"
    reader = QuestionReader(stem_weights(train), asking_words(train))
    question = reader.read("Den Ball wirft wer ?")
    assert question.places == [-3, -2, -1, 0] and question.size == 4
    chinese = read_passage("北京是首都。上海很大，人多！Ja.")
    assert chinese.sentences.tolist() == [0] * 6 + [1] * 8 + [2] * 2
    assert shape_with_years("McDonald's") == "XxXx'x" and shape_with_years("1843") == "0000"


def test_overlap_by_hand() -> None:
    text = "Ada wrote it in 1843 . Bob read a book ."
    train = [Example(("who wrote it ?", text), []), Example(("x", "y z"), [])]
    reader = QuestionReader({"wrote": 2.0, "it": 0.5}, ["who"])
    questions = [reader.read(example.texts[0]) for example in train]
    batch = Batch.of_examples([read_passage(example.texts[1]) for example in train], questions)
    overlap = overlap_of(batch)
    assert overlap.weights.tolist() == [0, 2, 0.5] + [0] * 10
    assert overlap.left[:6].tolist() == [FAR, FAR, 1, 2, 3, 4] and overlap.left[6] == FAR
    assert overlap.right[:3].tolist() == [1, FAR, FAR] and overlap.right_places[0] == 1
    assert overlap.ranks.tolist() == [0] * 6 + [1] * 5 + [0] * 2
    np.testing.assert_allclose(overlap.best, [2.5 / 4.5, 0])
    np.testing.assert_allclose(overlap.covered, [2.5 / 4.5, 0])


def test_a_word_has_the_same_features_whatever_is_read_beside_it() -> None:
    train = labelled("span", 40, 1)
    features, matrix = AnswerFeatures.fit(train)
    whole = features.parts(train)["answers"]
    assert (whole != matrix).nnz == 0 and set(whole.data) == {1.0}
    ends = np.cumsum([0, *answer_rows(train)])
    for number in (0, 7, 39):
        alone = features.parts(train[number : number + 1])["answers"]
        assert (alone != whole[ends[number] : ends[number + 1]]).nnz == 0
    assert features.parts([])["answers"].shape == (0, len(features.columns))


@pytest.mark.parametrize("texts", [("", ""), ("", "a text"), ("who ?", " \n "), ("?", "!")])
def test_empty_questions_and_texts_are_no_obstacle(texts: tuple[str, str]) -> None:
    train = labelled("span", 40, 1)
    task = span_task(train)
    fitted = task.fit_wide([*train, Example(texts, [])], train, "answer_f1")
    assert fitted is not None and np.isfinite(fitted.train).all()
    (answer,) = labels_by(fitted.wide, task, {"test": [Example(texts, None)]})["test"]
    assert answer in texts[1]


# in a model


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": np.array([3, 2], np.int32)}, "not in order"),
        ({"columns": np.array([5, 1 << 30], np.int32)}, "not in order"),
        ({"columns": np.zeros(2, np.int64)}, "numbers of features"),
        ({"format": 9}, "format 9"),
        ({"weights": {"a": float("nan")}}, "not finite"),
    ],
)
def test_damaged_features_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    train = labelled("span", 40, 1)
    fitted = span_task(train).fit_wide(train, train, "answer_f1")
    assert fitted is not None
    fitted.wide.save(tmp_path)
    if "columns" in change:
        (tmp_path / "answers.safetensors").write_bytes(safetensors.numpy.save(change))
    else:
        about = json.loads((tmp_path / "answers.json").read_text()) | change
        (tmp_path / "answers.json").write_text(json.dumps(about))
    with pytest.raises((RunError, ValueError), match=words):
        Wide.load(tmp_path)


def test_words_of_ascii_text_are_those_of_any_text() -> None:
    """The short cut for such text finds what the rule finds; é does not change what is before."""
    from tasklm.tasks.readers.word_rows import split_words

    draw = random.Random(0)
    for _ in range(2000):
        text = "".join(draw.choices("ab1 2.,'\n_-\x1c\tX9$", k=draw.randrange(15)))
        assert split_words(text) == split_words(f"{text} é")[:-1]
