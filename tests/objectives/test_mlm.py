from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.objectives.mlm import MaskedLanguageModel
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


def rows(vocabulary: Vocabulary, count: int, length: int) -> TokenBatch:
    ids = torch.randint(5, len(vocabulary), (count, length))
    ids[:, 0], ids[:, -1] = vocabulary.cls, vocabulary.sep
    return TokenBatch(ids, torch.ones_like(ids), torch.arange(length).expand_as(ids).clone())


@pytest.fixture
def parts(vocabulary: Vocabulary) -> tuple[Bert, MaskedLanguageModel]:
    torch.manual_seed(0)
    shape = Shape(len(vocabulary), 2, 32, 4, 64, 64, dropout=0.0)
    return Bert(shape), MaskedLanguageModel(shape, vocabulary, 0.15)


def test_rates_are_berts(parts: tuple[Bert, MaskedLanguageModel], vocabulary: Vocabulary) -> None:
    batch = rows(vocabulary, 400, 64)
    corrupted = parts[1].corrupt(batch, torch.Generator().manual_seed(0))
    usable = 400 * 62
    assert corrupted.targets == round(0.15 * usable)
    shown = corrupted.batch.ids.flatten()[corrupted.picked]
    assert abs(float((shown == vocabulary.mask).float().mean()) - 0.8) < 0.02
    assert abs(float((shown == corrupted.answers).float().mean()) - 0.1) < 0.02
    assert torch.equal(corrupted.answers, batch.ids.flatten()[corrupted.picked])
    untouched = torch.ones(400 * 64, dtype=torch.bool)
    untouched[corrupted.picked] = False
    assert torch.equal(corrupted.batch.ids.flatten()[untouched], batch.ids.flatten()[untouched])
    assert not bool(torch.isin(corrupted.answers, torch.tensor(vocabulary.specials)).any())


def test_masks_are_drawn_afresh_and_repeat_with_the_seed(parts: tuple[Bert, MaskedLanguageModel], vocabulary: Vocabulary) -> None:
    batch = rows(vocabulary, 4, 32)
    first, again, other = (parts[1].corrupt(batch, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.batch.ids, again.batch.ids)
    assert not torch.equal(first.picked, other.picked)


def test_loss_equals_the_full_logits_computation(parts: tuple[Bert, MaskedLanguageModel], vocabulary: Vocabulary) -> None:
    encoder, objective = parts
    corrupted = objective.corrupt(rows(vocabulary, 4, 32), torch.Generator().manual_seed(0))
    hidden = encoder(corrupted.batch)  # logits at every position, the rest ignored: the slow way
    logits = functional.linear(objective.norm(functional.gelu(objective.dense(hidden))), encoder.token.weight, objective.bias)
    labels = torch.full((4 * 32,), -100)
    labels[corrupted.picked] = corrupted.answers
    wanted = functional.cross_entropy(logits.flatten(0, 1), labels, ignore_index=-100, reduction="sum")
    torch.testing.assert_close(objective(encoder, corrupted), wanted)


def test_splitting_keeps_targets_and_loss(parts: tuple[Bert, MaskedLanguageModel], vocabulary: Vocabulary) -> None:
    encoder, objective = parts
    corrupted = objective.corrupt(rows(vocabulary, 7, 32), torch.Generator().manual_seed(0))
    pieces = corrupted.split(3)
    assert sum(piece.targets for piece in pieces) == corrupted.targets
    torch.testing.assert_close(sum(objective(encoder, piece) for piece in pieces), objective(encoder, corrupted))
