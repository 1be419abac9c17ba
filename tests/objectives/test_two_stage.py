"""ELECTRA in two stages: what each half computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, Corrupted, TwoHalves
from tasklm.objectives.electra import Electra
from tasklm.objectives.electra_two_stage import TwoStageElectra
from tasklm.recipe.model_sections import Train
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import stir
from tests.objectives.test_electra import rows_of

KINDS = ["bert", "modern", "albert"]


def made(
    vocabulary: Vocabulary, kind: str = "bert", name: str = "electra-two-stage"
) -> tuple[Any, Any, Corrupted]:
    torch.manual_seed(0)
    inner = 192 if kind == "modern" else 256
    shape = Shape(
        len(vocabulary) + 12, 2, 64, 1, inner, 32, embedding=32
    )  # what `electra` makes a generator of the same width from
    encoder = ENCODERS.get(kind)(shape)
    objective = OBJECTIVES.get(name)(kind, shape, vocabulary, Train(generator=1.0))
    stir(encoder, 0.1)
    stir(objective, 0.1)
    torch.manual_seed(1)
    return encoder, objective, objective.corrupt(rows_of(vocabulary), 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_half_is_masked_language_modelling(vocabulary: Vocabulary, kind: str) -> None:
    encoder, objective, corrupted = made(vocabulary, kind)
    assert isinstance(objective, TwoHalves) and not isinstance(
        made(vocabulary, kind, "electra")[1], TwoHalves
    )
    _, mlm, _ = made(vocabulary, kind, "mlm")
    mlm.load_state_dict(objective.prediction.state_dict())
    losses = objective(encoder, corrupted)
    torch.testing.assert_close(losses["generator"], mlm(encoder, corrupted)["lm"])
    assert set(losses) == {"generator"} and objective.targets(corrupted) == {
        "generator": corrupted.targets()
    }
    assert (
        corrupted.batch.ids.gather(1, corrupted.picked)[corrupted.answers >= 0] == vocabulary.mask
    ).all()
    losses["generator"].backward()
    assert all(
        weight.grad is not None
        for weight in [*encoder.parameters(), *objective.prediction.parameters()]
    )
    assert all(
        weight.grad is None
        for weight in [*objective.generator.parameters(), *objective.judgement.parameters()]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_switch_the_generator_predicts_what_the_encoder_predicts(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective, corrupted = made(vocabulary, kind)
    places, _ = corrupted.places()
    wanted = objective.prediction.logits(encoder(corrupted.batch, places), encoder.token)
    before = objective.generator(objective.generator.network, corrupted).logits
    assert not torch.allclose(before, wanted, atol=1e-2)
    objective.begin_second_half(encoder)
    shown = objective.generator(objective.generator.network, corrupted)
    assert torch.equal(shown.logits, wanted) and not any(
        weight.requires_grad for weight in objective.generator.parameters()
    )
    with torch.no_grad():
        for weight in [*encoder.parameters(), *objective.prediction.parameters()]:
            weight.add_(1.0)
    assert torch.equal(
        objective.generator(objective.generator.network, corrupted).logits, shown.logits
    )  # a copy, embeddings too


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_the_second_half_is_that_of_electra(vocabulary: Vocabulary, kind: str) -> None:
    encoder, objective, corrupted = made(vocabulary, kind)
    objective.begin_second_half(encoder)
    _, electra, again = made(vocabulary, kind, "electra")
    assert isinstance(electra, Electra) and torch.equal(corrupted.batch.ids, again.batch.ids)
    layers = {
        name: value
        for name, value in encoder.state_dict().items()
        if name in electra.generator.network.state_dict()
    }
    electra.generator.network.load_state_dict(
        layers
    )  # it reads the encoder's embeddings, which are the copy's
    electra.generator.prediction.load_state_dict(objective.prediction.state_dict())
    electra.judgement.load_state_dict(objective.judgement.state_dict())
    losses = objective(encoder, corrupted)
    torch.testing.assert_close(
        losses["discriminator"], electra(encoder, corrupted)["discriminator"]
    )
    assert set(losses) == {"discriminator"} and objective.targets(corrupted) == {
        "discriminator": corrupted.judged_tokens()
    }
    losses["discriminator"].backward()
    assert all(
        weight.grad is not None
        for weight in [*encoder.parameters(), *objective.judgement.parameters()]
    )
    assert all(
        weight.grad is None
        for weight in [*objective.generator.parameters(), *objective.prediction.parameters()]
    )


def test_both_losses_weigh_beside_a_task_as_those_of_mlm_and_electra(
    vocabulary: Vocabulary,
) -> None:
    _, objective, _ = made(vocabulary)
    _, electra, _ = made(vocabulary, name="electra")
    assert objective.weights == {
        "generator": 1.0,
        "discriminator": electra.weights["discriminator"],
    }


def test_it_takes_no_gradient_through_samples_of_its_own_past(vocabulary: Vocabulary) -> None:
    """By hand: samples of the frozen logits, judged by the encoder."""
    encoder, objective, corrupted = made(vocabulary)
    objective.begin_second_half(encoder)
    places, answers, draws = corrupted.drawn_places()
    with torch.no_grad():
        shares = objective.prediction.logits(encoder(corrupted.batch, places), encoder.token)[
            :, : len(vocabulary)
        ].softmax(-1)
    sampled = torch.tensor(
        [
            int((row.cumsum(0) <= draw * row.sum()).sum())
            for row, draw in zip(shares, draws, strict=True)
        ]
    )
    ids = corrupted.batch.ids.clone().flatten()
    ids[places] = sampled
    replaced = torch.zeros(ids.shape)
    replaced[places] = (sampled != answers).float()
    logits = objective.judgement(
        encoder(
            type(corrupted.batch)(
                ids.view(corrupted.batch.ids.shape),
                corrupted.batch.pieces,
                corrupted.batch.positions,
            )
        )
    )
    real = (corrupted.batch.pieces != 0).flatten()
    wanted = functional.binary_cross_entropy_with_logits(
        logits.flatten()[real], replaced[real], reduction="sum"
    )
    torch.testing.assert_close(objective(encoder, corrupted)["discriminator"], wanted)


def test_another_width_of_the_generator_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(RecipeError, match=r"train\.generator = 0\.5: .* copy of the encoder"):
        TwoStageElectra("bert", Shape(64, 1, 64, 1, 64, 8), vocabulary, Train(generator=0.5))
    TwoStageElectra("bert", Shape(64, 1, 64, 1, 64, 8), vocabulary, Train())
