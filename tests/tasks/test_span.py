"""Answers from the text: the search for the best pair, the loss, and windows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.span_samples import QUESTION, TEXTS, example, task, vocabulary

from tasklm.tasks.answer_windows import window_starts
from tasklm.tasks.base import NONE, Floats
from tasklm.tasks.heads.answer_search import RANK, best_answers
from tasklm.tasks.readers.squad import MISSING


def outputs_for(places: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(places, 2 + 2 * RANK)) * 2


def pair_score(outputs: Floats, start: int, end: int) -> float:
    """The definition, one pair at a time."""

    def log_p(scores: list[float], at: int) -> float:
        return scores[at] - math.log(sum(math.exp(score) for score in scores))

    ends = [
        sum(a * b for a, b in zip(row[2 + RANK :], outputs[start, 2 : 2 + RANK], strict=True))
        / math.sqrt(RANK)
        + row[1]
        for row in outputs
    ]
    return log_p([row[0] for row in outputs], start) + log_p(ends, end)


# decoding


@pytest.mark.parametrize(
    ("places", "longest", "seed"), [(2, 5, 0), (9, 3, 1), (12, 30, 2), (17, 1, 3)]
)
def test_a_beam_over_all_starts_finds_the_best_pairs(places: int, longest: int, seed: int) -> None:
    outputs = outputs_for(places, seed)
    pairs = [(s, e) for s in range(1, places) for e in range(s, min(places, s + longest))]
    expected = sorted(((pair_score(outputs, s, e), s, e) for s, e in pairs), reverse=True)
    none, found = best_answers(outputs, places, longest)
    assert none == pytest.approx(pair_score(outputs, 0, 0))
    assert [pair[:2] for pair in found] == [(s, e) for _, s, e in expected[:places]]
    assert [pair[2] for pair in found] == pytest.approx(
        [score for score, _, _ in expected[:places]]
    )


def test_a_small_beam_looks_at_the_best_starts_only() -> None:
    outputs = outputs_for(12, 5)
    starts = sorted(range(1, 12), key=lambda s: -outputs[s, 0])[:3]
    expected = max(
        (pair_score(outputs, s, e), s, e) for s in starts for e in range(s, min(12, s + 4))
    )
    found = best_answers(outputs, 3, 4)[1]
    assert (
        len(found) == 3 and found[0][:2] == expected[1:] and {s for s, _, _ in found} <= set(starts)
    )


def test_a_window_without_text_has_no_candidates() -> None:
    none, found = best_answers(outputs_for(1, 0), 20, 30)
    assert none == pytest.approx(0.0) and found == []


# loss


def targets_for(places: list[int], marks: list[tuple[int, int] | None], width: int) -> torch.Tensor:
    targets = torch.full((len(places), width, 2), NONE)
    for row, (size, pair) in enumerate(zip(places, marks, strict=True)):
        if pair is not None:
            targets[row, :size] = 0
            targets[row, pair[0], 0] = targets[row, pair[1], 1] = 1
    return targets


def test_the_loss_is_that_of_a_plain_loop_and_padding_changes_nothing() -> None:
    sizes, marks = [5, 8, 3, 4], [(1, 3), (0, 0), (2, 2), None]
    rows = [outputs_for(size, seed) for seed, size in enumerate(sizes)]
    expected = -sum(
        pair_score(row, *pair) for row, pair in zip(rows, marks, strict=True) if pair is not None
    )
    for width in (8, 20):
        outputs = (
            torch.randn(4, width, 2 + 2 * RANK, generator=torch.Generator().manual_seed(1)) * 50
        )
        for row, values in enumerate(rows):
            outputs[row, : len(values)] = torch.from_numpy(values)
        outputs.requires_grad_()
        targets = targets_for(sizes, marks, width)
        loss = task().loss(outputs, targets)
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        assert task().loss(outputs, targets.to(torch.int8)).item() == loss.item()
        with torch.autocast("cpu", torch.bfloat16):
            assert task().loss(outputs, targets).item() == loss.item()
        assert task().count(targets) == 3
        loss.backward()
        gradient = outputs.grad
        assert gradient is not None and bool(torch.isfinite(gradient).all())
        assert not gradient[targets[..., 0] == NONE].any()


def test_a_head_learns_starts_and_the_ends_that_belong_to_them() -> None:
    """Two questions whose starts are plain; the end depends on the start alone."""
    torch.manual_seed(0)
    states = torch.randn(2, 6, 16)
    states[1, 3:] = states[0, 3:]
    targets = targets_for([6, 6], [(1, 4), (2, 5)], 6)
    span = task()
    head = span.head(16, 0.0)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        loss = span.loss(head(states), targets)
        loss.backward()
        optimiser.step()
    found = [span.keep(row)[1][0][:2] for row in head(states).detach().double().numpy()]
    assert found == [(1, 4), (2, 5)]


# encoding


@pytest.mark.parametrize(
    ("tokens", "room", "shared"), [(0, 5, 2), (5, 5, 2), (6, 5, 2), (40, 7, 3), (41, 8, 0)]
)
def test_windows_cover_every_token_and_share_what_they_should(
    tokens: int, room: int, shared: int
) -> None:
    starts = window_starts(tokens, room, shared)
    windows = [list(range(start, min(tokens, start + room))) for start in starts]
    assert sorted({token for window in windows for token in window}) == list(range(tokens))
    for before, after in itertools.pairwise(windows):
        assert len(set(before) & set(after)) == shared and set(after) - set(before)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_offsets_map_back_for_accents_chinese_and_emoji(kind: str) -> None:
    known = vocabulary(kind)
    cases = [
        (TEXTS[0], "Café beträgt übrigens"),
        (TEXTS[0], "zwölf"),
        (TEXTS[1], "中国"),
        (TEXTS[1], "上海"),
        (TEXTS[2], "😀"),
        (TEXTS[2], "pizza 🍕"),
        (TEXTS[2], "naïve façade"),
        (TEXTS[2], "$3.50"),
        (TEXTS[3], "wine \u00a0 with"),
        (TEXTS[3], "and tabs"),
    ]
    for (context, answer), length in itertools.product(cases, (400, 48)):
        span = task(stride=20, unanswerable=False)
        examples = [example(context, [(answer, context.index(answer))], "谁?")]
        units = span.encode(examples, known, length)
        room = length - 3 - len(known.encode(["谁?"])[0])
        assert (len(units) > 1) == (len(known.encode([context])[0]) > room)
        assert all(len(unit.tokens) <= length for unit in units)
        held = [unit for unit in units if unit.targets is not None and not unit.targets[0].any()]
        assert held  # the whole answer is in one window at least
        kept = []
        for unit in units:
            assert (
                unit.targets is not None
                and len(unit.targets) == len(unit.places)
                and unit.targets.sum() == 2
            )
            start, end = (int(unit.targets[:, side].argmax()) for side in (0, 1))
            kept.append((-5.0, [(start, end, -1.0)] if start else []))
        (found,) = span.answers(examples, units, kept)
        assert (found["answer"], found["begin"], found["end"]) == (
            answer,
            context.index(answer),
            context.index(answer) + len(answer),
        )
        assert span.label_of(found) == answer


def test_units_have_question_and_window_and_marks_at_the_answer() -> None:
    known, context = vocabulary(), TEXTS[0]
    tokens, spans = known.spans(context)
    question = known.encode([QUESTION])[0]
    (unit,) = task().encode(
        [example(context, [("Marie Curie", context.index("Marie"))])], known, 400
    )
    assert unit.tokens == [known.cls, *question, known.sep, *tokens, known.sep]
    assert unit.second == len(question) + 2 and unit.places == [
        0,
        *range(unit.second, unit.second + len(tokens)),
    ]
    assert unit.targets is not None
    start, end = unit.targets[:, 0].tolist().index(1), unit.targets[:, 1].tolist().index(1)
    assert (spans[start - 1][0], spans[end - 1][1]) == (
        context.index("Marie"),
        context.index("Marie") + len("Marie Curie"),
    )


def test_what_has_no_answer_points_at_cls_and_what_has_no_label_at_nothing() -> None:
    known = vocabulary()
    labels: list[Any] = [
        [],
        None,
        [("not there at all", MISSING)],
        [("not there", MISSING), ("wohnte", TEXTS[0].index("wohnte"))],
    ]
    units = task().encode([example(TEXTS[0], label) for label in labels], known, 400)
    assert [unit.example for unit in units] == [0, 1, 2, 3]
    none, unlabelled, faulty, second = (unit.targets for unit in units)
    assert none is not None and none[0].tolist() == [1, 1] and none.sum() == 2
    assert unlabelled is None
    assert faulty is not None and (faulty == NONE).all()
    assert second is not None and second[0].tolist() == [0, 0] and second.sum() == 2


def test_questions_are_cut_and_empty_contexts_are_a_unit() -> None:
    known = vocabulary()
    (unit,) = task().encode([example("", None, "Café " * 200)], known, 32)
    assert len(unit.tokens) == 1 + 14 + 2 and unit.places == [0]
    assert task().answers([example("", None)], [unit], [(0.0, [])]) == [
        {"answer": "", "begin": 0, "end": 0, "score": 1.0, "answerable": False}
    ]
