"""Teachers of answers in texts and of trees: losses against sums by plain loops, lessons of sure
teachers that are the labels, and tokens and windows of the student that are not the teacher's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.span_samples import TEXTS, example, task, vocabulary
from torch import Tensor

from tasklm.tasks.answer_windows import Window
from tasklm.tasks.base import NONE, Floats
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.answer_search import AXES, OF_NETWORK, OUTPUTS, RANK
from tasklm.tasks.heads.soft_answers import LIKELIEST, WIDTH, window_lesson
from tasklm.tasks.parse import Parse
from tasklm.tasks.readers.word_rows import split_words
from tasklm.tasks.text_lessons import NO_ANSWER
from tasklm.tasks.turns import lesson_width
from tasklm.tokens.examples import EncodedExamples

TEXT = TEXTS[0]
ANSWER = "Marie Curie"


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def end_logs(outputs: Floats, start: int) -> Floats:
    """The logarithms of the probabilities of ends, by hand."""
    scores = []
    for end in range(len(outputs)):
        network = outputs[start, 2 : 2 + RANK] @ outputs[end, 2 + RANK : OF_NETWORK]
        wide = outputs[start, OF_NETWORK : OF_NETWORK + AXES] @ outputs[end, OF_NETWORK + AXES :]
        scores.append(network / math.sqrt(RANK) + outputs[end, 1] + wide)
    return np.array(scores) - math.log(sum(math.exp(score) for score in scores))


def test_the_loss_of_answers_is_their_cross_entropy() -> None:
    places, rows = 7, 3
    outputs = drawn(rows, places, OUTPUTS)
    draw = np.random.default_rng(2)
    taught = np.zeros((rows, places, WIDTH), np.float32)
    expected = 0.0
    for row in range(2):  # the third has no targets
        shares = draw.dirichlet(np.ones(5))
        taught[row, :5, 0] = shares  # the last two places are padding
        own = outputs[row, :5].numpy()
        logs = own[:, 0] - math.log(sum(math.exp(value) for value in own[:, 0]))
        expected -= sum(share * log for share, log in zip(shares, logs, strict=True))
        expected -= shares[0] * end_logs(own, 0)[0]
        for number, start in enumerate((3, 1), 1):  # the likeliest, with two ends each
            ends = np.zeros(5)
            ends[[start, start + 1]] = 0.25, 0.75
            taught[row, start, number] = shares[start]
            taught[row, :5, LIKELIEST + number] = ends
            expected -= shares[start] * float(ends @ end_logs(own, start))
    targets = torch.full((rows, places, 2), NONE)
    targets[:2, :5] = 0
    targets[:2, 0] = 1
    taught[2] = 1.0
    loss = task().taught_loss(outputs, torch.from_numpy(taught), targets)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def gold_lesson(text: str, answer: str) -> Floats:
    """What a teacher says who is sure of the label."""
    if not answer:
        return np.array([[NO_ANSWER, NO_ANSWER, 1.0]])
    begin = text.index(answer)
    words = [
        number
        for number, (first, last) in enumerate(split_words(text))
        if last > begin and first < begin + len(answer)
    ]
    return np.array([[words[0], words[-1], 1.0]], np.float64)


@pytest.mark.parametrize("length", [96, 24])  # of rows: one window, several
@pytest.mark.parametrize("answer", [ANSWER, "zwölf Meter", ""])
def test_a_teacher_who_is_sure_of_the_label_teaches_the_label(answer: str, length: int) -> None:
    span, tokens = task(), vocabulary()
    one = example(TEXT, [(answer, TEXT.index(answer))] if answer else [])
    rows = span.lesson_rows(one, gold_lesson(TEXT, answer))
    assert rows.shape == (1 + len(split_words(TEXT)), lesson_width(span))
    both = [one, example(TEXTS[2], [])]
    other = span.lesson_rows(both[1], gold_lesson(TEXTS[2], ""))
    taught = np.concatenate([rows, other]).astype(np.float32)
    encoded = EncodedExamples.of(span, both, tokens, length, None, taught)
    assert (len(encoded.units) > 2) is (length == 24)
    batch = encoded.padded(np.arange(len(encoded)))
    assert batch.taught is not None and batch.targets is not None
    outputs = drawn(*batch.targets.shape[:2], OUTPUTS)
    loss = span.taught_loss(outputs, batch.taught, batch.targets)
    torch.testing.assert_close(loss, span.loss(outputs, batch.targets))


def test_answers_outside_a_window_are_none_there() -> None:
    text = "one two three four five"
    words = np.array(split_words(text), np.int32)
    span = task()
    asked_about = example(text, None)
    lesson = np.array([[-1, -1, 0.1], [1, 1, 0.2], [1, 3, 0.4], [4, 4, 0.3]])
    rows = span.lesson_rows(asked_about, lesson)
    whole = window_lesson(rows, words, np.concatenate([[[0, 0]], words]).astype(np.int32))
    np.testing.assert_allclose(whole[:, 0], [0.1, 0, 0.6, 0, 0, 0.3])
    np.testing.assert_allclose(whole[:, 1], [0, 0, 0.6, 0, 0, 0])
    np.testing.assert_allclose(whole[:, 1 + LIKELIEST], [0, 0, 1 / 3, 0, 2 / 3, 0])
    part = window_lesson(rows, words, np.concatenate([[[0, 0]], words[:3]]).astype(np.int32))
    # an answer that ends outside, and one that begins there, count as none
    np.testing.assert_allclose(part[:, 0], [0.8, 0, 0.2, 0])
    np.testing.assert_allclose(part[:, 1 + LIKELIEST], [0, 0, 1, 0])


@pytest.mark.parametrize("length", [96, 24])
@pytest.mark.parametrize("answer", [ANSWER, ""])
def test_a_lesson_says_what_the_teacher_would_answer(answer: str, length: int) -> None:
    span, tokens = task(), vocabulary()
    gold: Any = [(answer, TEXT.index(answer))] if answer else []
    one = example(TEXT, gold)
    units = span.encode([one], tokens, length)
    of_units = []
    for unit in units:
        assert isinstance(unit, Window) and unit.targets is not None
        outputs = 0.1 * drawn(len(unit.places), OUTPUTS, seed=3).numpy()
        outputs[:, 0] += 9 * (unit.targets[:, 0] == 1)
        outputs[:, 1] += 9 * (unit.targets[:, 1] == 1)
        of_units.append(span.lesson(outputs))
    lesson = span.text_lesson(one, units, of_units, [0])
    assert lesson[:, 2].sum() == pytest.approx(1.0)
    label = span.label_of(span.answers([one], units, of_units)[0])
    assert span.lesson_label(one, lesson) == label == answer
    mean = span.mean_lesson([lesson, gold_lesson(TEXT, ANSWER), gold_lesson(TEXT, ANSWER)])
    assert mean[:, 2].sum() == pytest.approx(1.0)
    assert span.lesson_label(one, mean) == ANSWER


LABELS = ["det", "nsubj", "root"]
PARSE = Parse(LABELS, "det")
WORDS = ("the", "cat", "sleeps")
ARCS = [(2, "det"), (3, "nsubj"), (0, "root")]


def softmax(values: Floats) -> Floats:
    odds = np.exp(values - values.max())
    return np.asarray(odds / odds.sum())


def test_the_loss_of_trees_is_the_cross_entropy_of_heads_and_relations() -> None:
    """Of three words all four possible heads are kept; a fifth place is padding."""
    teacher, outputs = drawn(4, 4, 4).numpy(), drawn(1, 5, 5, 4, seed=1)
    rows = PARSE.lesson(teacher)
    taught = np.zeros((1, 5, lesson_width(PARSE)), np.float32)
    taught[0, 1:4] = rows
    targets = torch.full((1, 5, 2), NONE)
    targets[0, 1:4] = torch.tensor([[2, 0], [3, 1], [0, 2]])
    expected = 0.0
    for word in range(1, 4):
        heads = softmax(teacher[word, :, 0])
        own = np.log(softmax(outputs[0, word, :4, 0].numpy()))
        for head in range(4):
            names = softmax(teacher[word, head, 1:])
            logs = np.log(softmax(outputs[0, word, head, 1:].numpy()))
            expected -= heads[head] * (own[head] + float(names @ logs))
    own_outputs = outputs.clone().requires_grad_()
    loss = PARSE.taught_loss(own_outputs, torch.from_numpy(taught), targets)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert own_outputs.grad is not None and bool(own_outputs.grad.isfinite().all())


def sure_of(arcs: list[tuple[int, str]], places: int) -> Floats:
    """The outputs of a teacher who is sure of a tree."""
    outputs = np.full((places, places, 4), -30.0)
    for word, (head, name) in enumerate(arcs, 1):
        outputs[word, head, 0] = outputs[word, head, 1 + LABELS.index(name)] = 30.0
    return outputs


def test_a_parser_who_is_sure_of_the_tree_teaches_the_tree() -> None:
    tokens = vocabulary()
    words = [("the", "cat", "sleeps", "the"), WORDS]
    arcs = [[(2, "det"), (3, "nsubj"), (0, "root"), (2, "det")], ARCS]
    examples = [
        Example((" ".join(own),), label, words=own) for own, label in zip(words, arcs, strict=True)
    ]
    units = PARSE.encode(examples, tokens, 64)
    lessons = []
    for one, unit, label in zip(examples, units, arcs, strict=True):
        of_units = PARSE.lesson(sure_of(label, len(unit.places)))
        lessons.append(PARSE.text_lesson(one, [unit], [of_units], [0, 1, 2]))
        assert PARSE.lesson_label(one, lessons[-1]) == label
    mean = PARSE.mean_lesson([lessons[0], lessons[0]])
    np.testing.assert_allclose(mean[:, 1], 1.0)
    assert PARSE.lesson_label(examples[0], mean) == arcs[0]
    taught = np.concatenate(lessons).astype(np.float32)
    pieces = len(units[0].tokens)
    for length in (64, pieces - 1):  # the last word does not fit
        encoded = EncodedExamples.of(PARSE, examples, tokens, length, None, taught)
        batch = encoded.padded(np.arange(2))
        assert batch.taught is not None and batch.targets is not None
        assert batch.places is not None
        outputs = drawn(2, batch.places.shape[1], batch.places.shape[1], 4)
        loss = PARSE.taught_loss(outputs, batch.taught, batch.targets)
        torch.testing.assert_close(loss, PARSE.loss(outputs, batch.targets), atol=1e-5, rtol=1e-5)


def test_relations_are_in_the_order_of_the_student_and_unread_words_are_attached() -> None:
    one = Example((" ".join(WORDS),), None, words=WORDS)
    (unit,) = PARSE.encode([one], vocabulary(), 64)
    teacher = Parse(LABELS[::-1], "det")
    outputs = sure_of(ARCS, len(unit.places))
    outputs[..., 1:] = outputs[..., :0:-1]
    of_units = teacher.lesson(outputs)
    lesson = PARSE.text_lesson(one, [unit], [of_units], [2, 1, 0])
    assert PARSE.lesson_label(one, lesson) == ARCS
    short = teacher.lesson(sure_of([(2, "det"), (0, "root")], 3))
    lesson = PARSE.text_lesson(one, [unit], [short], [0, 1, 2])
    assert not lesson[2].any()
    assert PARSE.lesson_label(one, lesson) == [(2, "det"), (0, "root"), (2, "det")]


def test_two_parsers_teach_the_mean_of_their_probabilities() -> None:
    first, second = drawn(3, 3, 4).numpy(), drawn(3, 3, 4, seed=4).numpy()
    mean = PARSE.mean_lesson([PARSE.lesson(first), PARSE.lesson(second)])
    rows = mean.reshape(2, -1, 5)
    for word in (1, 2):
        for head, chance, *names in rows[word - 1].tolist():
            own = [softmax(one[word, :, 0]) for one in (first, second)]
            if chance:
                at = int(head)
                assert chance == pytest.approx((own[0][at] + own[1][at]) / 2)
                joint = [
                    share[at] * softmax(one[word, at, 1:])
                    for share, one in zip(own, (first, second), strict=True)
                ]
                np.testing.assert_allclose(names, (joint[0] + joint[1]) / 2 / chance)
