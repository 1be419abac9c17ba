"""Cross-view training: what each module sees, and what its loss is taken over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tasklm.students.base import RawBatch, text_holds
from tasklm.students.cross_view import CrossView
from tasklm.tokens.halves import halves_of
from tasklm.tokens.tokenizer import Vocabulary
from tests.students.samples import TASKS, batch_of, model_of, student_of

PACKED = [False, True]


def losses_of(student: Any, model: Any, raw: RawBatch) -> dict[str, torch.Tensor]:
    targets = student.consistency.targets(model(raw.text), raw.holds).detach()
    losses: dict[str, torch.Tensor] = student(model, raw, targets, None)
    return losses


@pytest.mark.parametrize("packed", PACKED)
def test_lasts_are_the_ends_of_words(vocabulary: Vocabulary, packed: bool) -> None:
    batch = batch_of(TASKS["tag"], vocabulary, packed)
    assert batch.lasts is not None and batch.places is not None
    continues = vocabulary.continuing()
    words = 0
    for row in range(len(batch.ids)):
        for first, last in zip(batch.places[row].tolist(), batch.lasts[row].tolist(), strict=True):
            if last < 0:
                continue
            words += 1
            ids = batch.ids[row].tolist()
            assert not continues[ids[first]] and all(continues[ids[first + 1 : last + 1]])
            assert ids[last + 1] == vocabulary.sep or not continues[ids[last + 1]]
    assert words == 1 + 2 + 3 + 4 + 5 + 6


@pytest.mark.parametrize("packed", PACKED)
def test_words_without_a_neighbour_are_left_out(vocabulary: Vocabulary, packed: bool) -> None:
    task = TASKS["tag"]
    student = student_of("cross-view", task, vocabulary, model_of(task, vocabulary))
    targets = student.prepare(batch_of(task, vocabulary, packed), 1).targets()
    assert targets == {
        "full view": 21,
        "forward view": 21,
        "backward view": 21,
        "future view": 15,
        "past view": 15,
    }


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("encoder", ["bert", "modern", "bilstm"])
def test_each_view_of_a_word_sees_its_side_alone(
    vocabulary: Vocabulary, encoder: str, packed: bool
) -> None:
    """Changing a word changes the states of exactly those words whose view holds it."""
    task = TASKS["tag"]
    model = model_of(task, vocabulary, encoder)
    student = student_of("cross-view", task, vocabulary, model)
    assert isinstance(student, CrossView)
    batch = batch_of(task, vocabulary, packed)
    assert batch.places is not None and batch.lasts is not None
    raw = student.prepare(batch, 1)
    with torch.no_grad():
        before = student._states(model, raw)
    row, at = (0, 4) if packed else (5, 2)
    piece = batch.pieces[row, batch.places[row, at]]
    ids = batch.ids.clone()
    span = slice(int(batch.places[row, at]), int(batch.lasts[row, at]) + 1)
    ids[row, span] = (ids[row, span] + 7) % 200 + 20
    with torch.no_grad():
        after = student._states(model, replace(raw, text=replace(batch, ids=ids)))
    own_text = (batch.pieces[row, batch.places[row]] == piece) & raw.holds[row]
    places = torch.arange(raw.holds.shape[1])
    sees = {
        "whole": places >= 0,
        "forward": places >= at,
        "backward": places <= at,
        "future": places > at,
        "past": places < at,
    }
    for name, side in sees.items():
        valid = raw.masks[f"{name.replace('whole', 'full')} view"]
        differs = (before[name] != after[name]).any(-1) & valid
        expected = torch.zeros_like(valid)
        expected[row] = own_text & side & valid[row]
        assert torch.equal(differs, expected), name


@pytest.mark.parametrize("packed", PACKED)
def test_halves_are_read_as_texts_by_themselves(vocabulary: Vocabulary, packed: bool) -> None:
    task = TASKS["classify"]
    model = model_of(task, vocabulary)
    encoder: Any = model.encoder
    batch = batch_of(task, vocabulary, packed)
    holds = text_holds(task.consistency(), batch)
    first, second, both = halves_of(batch, vocabulary.pad, holds)
    assert both.sum() < holds.sum() == 6
    assert batch.places is not None and batch.lasts is not None
    for row, slot in holds.nonzero().tolist():
        begin, last = int(batch.places[row, slot]), int(batch.lasts[row, slot])
        inner = batch.ids[row, begin + 1 : last + 1]
        middle = (len(inner) + 1) // 2
        assert bool(both[row, slot]) is (len(inner) > 1)
        for half, own in ((first, inner[:middle]), (second, inner[middle:])):
            text = torch.cat([torch.tensor([vocabulary.cls]), own, torch.tensor([vocabulary.sep])])
            alone = replace(
                batch,
                ids=text[None],
                pieces=torch.ones(1, len(text), dtype=torch.long),
                positions=torch.arange(len(text))[None],
            )
            place = torch.tensor([row * batch.ids.shape[1] + begin])
            with torch.no_grad():
                torch.testing.assert_close(
                    encoder(half, place), encoder(alone, torch.tensor([0])), atol=1e-5, rtol=1e-4
                )


@pytest.mark.parametrize("kind", list(TASKS))
def test_losses_are_those_of_single_rows(vocabulary: Vocabulary, kind: str) -> None:
    """Sums over a batch are those over its parts, and denominators too."""
    task = TASKS[kind]
    model = model_of(task, vocabulary)
    student = student_of("cross-view", task, vocabulary, model, unlabelled_dropout=0.0)
    raw = student.prepare(batch_of(task, vocabulary), 1)
    whole = losses_of(student, model, raw)
    assert set(whole) == set(raw.targets()) and all(float(loss) > 0 for loss in whole.values())
    parts = [raw.part(number, 3) for number in range(3)]
    for name, loss in whole.items():
        sums = [losses_of(student, model, part)[name] for part in parts]
        torch.testing.assert_close(torch.stack(sums).sum(), loss, rtol=1e-4, atol=1e-5)
        assert sum(part.targets()[name] for part in parts) == raw.targets()[name]


@pytest.mark.parametrize("kind", ["tag", "classify", "parse"])
def test_the_primary_s_head_does_not_learn(vocabulary: Vocabulary, kind: str) -> None:
    task = TASKS[kind]
    model = model_of(task, vocabulary)
    student = student_of("cross-view", task, vocabulary, model)
    raw = student.prepare(batch_of(task, vocabulary), 1)
    torch.stack(list(losses_of(student, model, raw).values())).sum().backward()
    assert all(weight.grad is None for weight in model.head.parameters())
    assert all(weight.grad is not None for weight in model.encoder.parameters())
    assert all(weight.grad is not None for weight in student.parameters())


def test_packed_and_padded_batches_have_the_same_losses(vocabulary: Vocabulary) -> None:
    for kind in ("tag", "classify"):
        task = TASKS[kind]
        model = model_of(task, vocabulary)
        student = student_of("cross-view", task, vocabulary, model, unlabelled_dropout=0.0)
        student.eval()
        one, other = (
            losses_of(student, model, student.prepare(batch_of(task, vocabulary, packed), 1))
            for packed in PACKED
        )
        for name, loss in one.items():
            torch.testing.assert_close(loss, other[name], rtol=1e-3, atol=1e-4)
