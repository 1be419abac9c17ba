"""Word dropout hides whole words by chance; VAT's noise points where answers change most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tasklm.students import vat
from tasklm.students.base import noisy_outputs
from tasklm.students.vat import VirtualAdversary, unit
from tasklm.students.word_dropout import WordDropout
from tasklm.tokens.tokenizer import Vocabulary
from tests.students.samples import TASKS, batch_of, model_of, student_of
from tests.train.test_loop import MACHINE

PACKED = [False, True]


def dropping(kind: str, vocabulary: Vocabulary, share: float) -> WordDropout:
    model = model_of(TASKS[kind], vocabulary)
    student = student_of("word-dropout", TASKS[kind], vocabulary, model, word_dropout=share)
    assert isinstance(student, WordDropout)
    return student


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", ["tag", "classify", "parse"])
def test_words_are_hidden_whole(vocabulary: Vocabulary, kind: str, packed: bool) -> None:
    if kind == "parse" and packed:
        pytest.skip("sentences of trees have rows of their own")
    student = dropping(kind, vocabulary, 0.4)
    batch = batch_of(TASKS[kind], vocabulary, packed)
    ids = batch.ids.numpy()
    hidden = student.without_words(batch, 3) == vocabulary.mask
    special = np.isin(ids, vocabulary.specials)
    assert hidden.any() and not hidden[special].any() and not hidden[~special].all()
    changed = student.without_words(batch, 3)
    np.testing.assert_array_equal(changed[~hidden], ids[~hidden])
    continues = vocabulary.continuing()
    for row, column in zip(*np.nonzero(~special), strict=True):
        if continues[ids[row, column]]:
            assert hidden[row, column] == hidden[row, column - 1]


def test_as_many_are_hidden_as_asked_for_and_by_the_seed(vocabulary: Vocabulary) -> None:
    student = dropping("tag", vocabulary, 0.1)
    batch = batch_of(TASKS["tag"], vocabulary)
    assert batch.places is not None and batch.lasts is not None
    firsts = batch.places[batch.lasts >= 0]
    rows = (batch.lasts >= 0).nonzero()[:, 0]
    shares = []
    for seed in range(400):
        changed = student.without_words(batch, seed)
        shares.append((changed[rows, firsts] == vocabulary.mask).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.01)
    np.testing.assert_array_equal(student.without_words(batch, 5), student.without_words(batch, 5))
    none, all_words = (dropping("tag", vocabulary, share) for share in (0.0, 1.0))
    np.testing.assert_array_equal(none.without_words(batch, 5), batch.ids)
    assert (all_words.without_words(batch, 5)[rows, firsts] == vocabulary.mask).all()


@pytest.mark.parametrize("kind", ["tag", "crf", "classify", "multilabel", "parse"])
def test_the_model_agrees_with_itself_where_nothing_is_hidden(
    vocabulary: Vocabulary, kind: str
) -> None:
    task = TASKS[kind]
    model = model_of(task, vocabulary)
    for share, nothing in ((0.0, True), (0.5, False)):
        student = student_of("word-dropout", task, vocabulary, model, word_dropout=share)
        raw = student.prepare(batch_of(task, vocabulary), 3)
        targets = student.consistency.targets(model(raw.text), raw.holds).detach()
        (loss,) = student(model, raw, targets, None).values()
        if kind != "crf":  # whose words are not independent of one another
            assert (abs(float(loss)) < 1e-4) is nothing
        assert float(loss) > -1e-4


def norms(noise: torch.Tensor, pieces: torch.Tensor) -> list[float]:
    """Those of each text, by loops."""
    values = []
    for row in range(len(pieces)):
        for piece in range(1, int(pieces[row].max()) + 1):
            values.append(float(noise[row, pieces[row] == piece].norm()))
    return values


@pytest.mark.parametrize("packed", PACKED)
def test_noise_has_one_norm_in_each_text(vocabulary: Vocabulary, packed: bool) -> None:
    batch = batch_of(TASKS["tag"], vocabulary, packed)
    noise = unit(torch.randn(*batch.ids.shape, 16), batch)
    assert norms(noise, batch.pieces) == pytest.approx([1.0] * 6, rel=1e-5)
    assert not noise[batch.pieces == 0].any()


@pytest.mark.parametrize("kind", ["tag", "classify", "parse"])
def test_noise_points_where_answers_change_most(
    vocabulary: Vocabulary, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against slopes of the divergence by finite differences, and against other noise."""
    monkeypatch.setattr(vat, "DISPLACED", 0.5)
    task = TASKS[kind]
    model = model_of(task, vocabulary)
    student = student_of("vat", task, vocabulary, model)
    assert isinstance(student, VirtualAdversary)
    raw = student.prepare(batch_of(task, vocabulary), 1).part(3, 6)
    encoder: Any = model.encoder
    embedded = encoder.embed(raw.text).detach()
    targets = noisy_outputs(model, embedded, raw.text).detach()

    def divergence(noise: torch.Tensor) -> float:
        with torch.no_grad():
            outputs = noisy_outputs(model, embedded + noise, raw.text)
            return float(student.consistency.divergence(outputs, targets, raw.holds))

    torch.manual_seed(4)
    direction = student.search(model, raw, targets, MACHINE)
    torch.manual_seed(4)
    start = 0.5 * unit(torch.randn_like(embedded), raw.text)
    probes = torch.randn(12, *embedded.shape)
    probes[:, raw.text.pieces == 0] = 0
    probes += direction  # so that none is at a right angle to it
    step = 0.01
    slopes = [
        (divergence(start + step * probe) - divergence(start - step * probe)) / (2 * step)
        for probe in probes
    ]
    along = [float((probe * direction).sum()) for probe in probes]
    length = np.dot(slopes, along) / np.dot(along, along)  # of the gradient, by its norm
    assert length > 0
    np.testing.assert_allclose(slopes, length * np.array(along), atol=0.05 * max(map(abs, slopes)))
    norm = student.consistency.norm
    assert float(direction.norm()) == pytest.approx(norm, rel=1e-4)
    others = [norm * unit(torch.randn_like(embedded), raw.text) for _ in range(30)]
    assert divergence(direction) > max(map(divergence, others))


def test_the_norm_is_the_kind_s_or_the_recipe_s(vocabulary: Vocabulary) -> None:
    for kind, norm in (("tag", 0.5), ("classify", 0.5), ("parse", 1.0)):
        task = TASKS[kind]
        model = model_of(task, vocabulary)
        for given, expected in ((None, norm), (1.5, 1.5)):
            student = student_of("vat", task, vocabulary, model, vat_norm=given)
            raw = student.prepare(batch_of(task, vocabulary), 1)
            targets = student.consistency.targets(model(raw.text), raw.holds).detach()
            noise = student.search(model, raw, targets, MACHINE)
            assert noise is not None
            assert norms(noise, raw.text.pieces) == pytest.approx([expected] * 6, rel=1e-4)
            (loss,) = student(model, raw, targets, noise).values()
            assert float(loss.detach()) > 0
            assert all(weight.grad is None for weight in model.parameters())
