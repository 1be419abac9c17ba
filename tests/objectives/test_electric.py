from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.objectives.electric import Electric, noise_odds
from tasklm.objectives.parts.two_towers import TwoTowers
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import stir
from tests.objectives.test_electra import made, rows_of


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_towers_see_both_sides_of_a_token_but_not_the_token_nor_other_pieces(
    vocabulary: Vocabulary, kind: str
) -> None:
    torch.manual_seed(0)
    shape = Shape(len(vocabulary), 2, 32, 2, 64, 32)
    encoder = ENCODERS.get(kind)(shape).eval()
    towers = TwoTowers(kind, shape, len(vocabulary), 1.0).eval()
    stir(encoder)
    stir(towers)
    ids = torch.randint(5, len(vocabulary), (1, 12))
    batch = TokenBatch(
        ids, torch.tensor([[1] * 7 + [2] * 5]), torch.tensor([[*range(7), *range(5)]])
    )

    def changed(column: int) -> torch.Tensor:
        other = ids.clone()
        other[0, column] = 5 if ids[0, column] != 5 else 6
        difference = towers.states(encoder, replace(batch, ids=other)) - towers.states(
            encoder, batch
        )
        return difference.abs().amax(-1) > 1e-6

    inside = changed(3)[1:6]  # tokens with neighbours of their piece on both sides
    assert inside.tolist() == [True, True, False, True, True]
    assert not bool(changed(9)[1:6].any())  # of the other piece
    assert changed(9)[8:11].tolist() == [True, False, True]


def test_the_loss_is_the_formula_token_by_token(vocabulary: Vocabulary) -> None:
    encoder, objective, corrupted = made(vocabulary, name="electric", temperature=0.9)
    losses = {name: float(loss.detach()) for name, loss in objective(encoder, corrupted).items()}
    with torch.no_grad():
        shown = objective.noise(encoder, corrupted)
        states = objective.noise.states(encoder, shown.batch)
        logits = (
            objective.noise.prediction.logits(states, encoder.token)[:, : len(vocabulary)] / 0.9
        )
        q = logits.softmax(-1).view(6, 24, -1)
        p = (-objective.energies(encoder, shown.batch)).exp()
        total = 0.0
        for row in range(6):
            picked = {
                int(c)
                for c, a in zip(corrupted.picked[row], corrupted.answers[row], strict=True)
                if a != NONE
            }
            judged = [
                column
                for column in range(24)
                if corrupted.batch.ids[row, column] not in vocabulary.specials
            ]
            k, n = len(picked), len(judged)
            for column in judged:
                noise = k * float(q[row, column, shown.batch.ids[row, column]])
                data = (n - k) * float(p[row, column])
                total -= np.log((noise if column in picked else data) / (noise + data))
    assert losses["energy"] == pytest.approx(total, rel=1e-4)
    assert objective.targets(corrupted) == {"noise": len(shown.places), "energy": 6 * 17}
    odds = noise_odds(corrupted)
    assert odds.shape == (6, 1) and float(odds[0]) == pytest.approx(
        np.log(3 / 14)
    )  # 17 tokens of a row, 3 of them picked


STEPS = 500


def language(vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    """All sentences of three words out of four, (64, 3) token numbers, and their probabilities."""
    words = [number for number in range(len(vocabulary)) if number not in vocabulary.specials][:4]
    sentences = torch.tensor(list(itertools.product(words, repeat=3)))
    draw = torch.Generator().manual_seed(4)
    return sentences, (1.5 * torch.randn(64, generator=draw)).softmax(0)


def as_batch(vocabulary: Vocabulary, sentences: torch.Tensor) -> TokenBatch:
    ends = (
        torch.full((len(sentences), 1), vocabulary.cls),
        torch.full((len(sentences), 1), vocabulary.sep),
    )
    ids = torch.cat((ends[0], sentences, ends[1]), 1)
    return TokenBatch(ids, torch.ones_like(ids), torch.arange(5).expand_as(ids).clone())


def naive_loss(scores: torch.Tensor, shares: torch.Tensor, k: float, n: float) -> torch.Tensor:
    """The paper's first algorithm in expectation: n data tokens, k samples of the four words alike,
    one replaced at a time.

    A sentence with a replaced word is again one of the 64: the scores −E of all (64, 3) are all
    that is needed.
    """
    odds, total = np.log(n / (k / 4)), torch.zeros(())
    for place in range(3):
        contexts = (
            shares.view(4, 4, 4).sum(place, keepdim=True).expand(4, 4, 4).flatten()
        )  # how likely the other two words are
        total = total - n / 3 * (shares * functional.logsigmoid(scores[:, place] + odds)).sum()
        total = (
            total - k / 3 * (contexts / 4 * functional.logsigmoid(-scores[:, place] - odds)).sum()
        )
    return total


def conditionals(sentences: torch.Tensor, shares: torch.Tensor, words: list[int]) -> torch.Tensor:
    """Returns p(word | the two others) of every sentence and place, (64, 3), by enumeration."""
    table = {
        tuple(sentence.tolist()): float(share)
        for sentence, share in zip(sentences, shares, strict=True)
    }
    found = torch.zeros(64, 3)
    for number, sentence in enumerate(sentences.tolist()):
        for place in range(3):
            others = [table[(*sentence[:place], word, *sentence[place + 1 :])] for word in words]
            found[number, place] = table[tuple(sentence)] / sum(others)
    return found


@pytest.mark.parametrize("efficient", [False, True])
def test_energies_become_the_probabilities_of_a_language_and_normalise_themselves(
    vocabulary: Vocabulary, efficient: bool
) -> None:
    """The naive estimate is the oracle; the efficient one, whose noise learns beside it, replaces
    one of three words at a time.
    """
    torch.manual_seed(0)
    shape = Shape(len(vocabulary), 2, 32, 2, 64, 8)
    encoder = ENCODERS.get("bert")(shape)
    objective = Electric("bert", shape, vocabulary, Train(mask_rate=0.3))
    sentences, shares = language(vocabulary)
    words = sentences.unique().tolist()
    weights = [*encoder.parameters(), *objective.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, STEPS)
    draw = torch.Generator().manual_seed(1)

    def energy(some: torch.Tensor) -> torch.Tensor:
        return objective.energies(encoder, as_batch(vocabulary, some))[:, 1:4]

    for step in range(STEPS):
        if efficient:
            batch = as_batch(
                vocabulary,
                sentences[torch.multinomial(shares, 128, replacement=True, generator=draw)],
            )
            corrupted = objective.corrupt(batch, step)
            targets = objective.targets(corrupted)
            loss = torch.stack(
                [loss / targets[name] for name, loss in objective(encoder, corrupted).items()]
            ).sum()
        else:
            loss = naive_loss(-energy(sentences), shares, k=1.0, n=2.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        found, wanted = (-energy(sentences)).exp(), conditionals(sentences, shares, words)
    likely = shares[:, None].expand_as(wanted)
    error = float(((found - wanted).abs() * likely).sum() / likely.sum())
    sums = torch.stack(
        [found.view(4, 4, 4, 3)[..., place].sum(place) for place in range(3)]
    )  # Σ over the words of a place
    weight = torch.stack([shares.view(4, 4, 4).sum(place) for place in range(3)])
    spread = float(((sums - 1).abs() * weight).sum() / weight.sum())
    assert error < (0.1 if efficient else 0.03) and spread < (0.4 if efficient else 0.05), (
        error,
        spread,
    )


def test_electra_tt_fills_places_without_masks(vocabulary: Vocabulary) -> None:
    encoder, objective, _ = made(vocabulary, name="electra-tt")
    batch = rows_of(vocabulary)
    corrupted = objective.corrupt(batch, 2)
    assert torch.equal(corrupted.batch.ids, batch.ids)
    shown = objective.generator(encoder, corrupted)
    assert torch.equal(shown.replaced, shown.batch.ids != batch.ids) and bool(shown.replaced.any())
