from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.models.task_model import cost_of
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.electra import Electra, loss_scale
from tasklm.objectives.parts.generators import generator_shape, noised, sample
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import stir


def rows_of(
    vocabulary: Vocabulary, count: int = 6, length: int = 24, padding: int = 5
) -> TokenBatch:
    ids = torch.randint(5, len(vocabulary), (count, length))
    ids[:, 0], ids[:, -padding - 1] = vocabulary.cls, vocabulary.sep
    ids[:, length - padding :] = vocabulary.pad
    pieces = torch.ones_like(ids)
    pieces[:, length - padding :] = 0
    return TokenBatch(ids, pieces, torch.arange(length).expand_as(ids).clone())


def made(
    vocabulary: Vocabulary, kind: str = "bert", name: str = "electra", **settings: Any
) -> tuple[Any, Electra, Corrupted]:
    torch.manual_seed(0)
    shape = Shape(len(vocabulary) + 12, 2, 64, 2, 128, 32, embedding=32)
    encoder = ENCODERS.get(kind)(shape)
    objective = OBJECTIVES.get(name)(kind, shape, vocabulary, Train(**settings))
    stir(encoder, 0.1)
    stir(objective, 0.1)
    return encoder, objective, objective.corrupt(rows_of(vocabulary), 3)


@pytest.mark.parametrize("kind", ["bert", "modern", "albert"])
def test_both_losses_train_both_networks_and_samples_carry_no_gradient(
    vocabulary: Vocabulary, kind: str
) -> None:
    encoder, objective, corrupted = made(vocabulary, kind)
    losses = objective(encoder, corrupted)
    assert (
        set(losses)
        == set(objective.weights)
        == set(objective.targets(corrupted))
        == {"generator", "discriminator"}
    )
    losses["discriminator"].backward(retain_graph=True)
    assert all(weight.grad is None for weight in objective.generator.parameters())
    assert (
        objective.judgement.dense.weight.grad is not None and encoder.token.weight.grad is not None
    )
    losses["generator"].backward()
    assert all(weight.grad is not None for weight in objective.generator.parameters())


def test_places_are_filled_with_samples_and_right_ones_count_as_original(
    vocabulary: Vocabulary,
) -> None:
    _, objective, corrupted = made(vocabulary)
    batch = rows_of(vocabulary)
    corrupted = objective.corrupt(batch, 5)
    places, answers, draws = corrupted.drawn_places()
    assert (corrupted.batch.ids.flatten()[places] == vocabulary.mask).all()
    assert len(draws) == len(answers) == len(places)
    half = len(places) // 2
    tokens = torch.cat(
        (answers[:half], torch.where(answers == 7, 8, 7)[half:])
    )  # right in the first half
    shown = noised(corrupted.batch, places, answers, tokens)
    wanted = batch.ids.clone().flatten()
    wanted[places[half:]] = tokens[half:]
    assert torch.equal(shown.batch.ids.flatten(), wanted)
    assert (
        torch.equal(shown.replaced, shown.batch.ids != batch.ids)
        and int(shown.replaced.sum()) == len(places) - half
    )


def test_samples_follow_the_distribution_and_its_temperature() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0]).expand(40_000, 4)
    draws = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    for temperature in (1.0, 0.5):
        found = torch.bincount(sample(logits / temperature, draws), minlength=4) / 40_000
        torch.testing.assert_close(
            found, (logits[0] / temperature).softmax(-1), atol=0.01, rtol=0.0
        )
    certain = torch.tensor([[-1e9, 0.0, -1e9]])
    assert [int(sample(certain, torch.tensor([number]))) for number in (0.0, 0.5, 1 - 2**-24)] == [
        1,
        1,
        1,
    ]


def test_draws_do_not_depend_on_the_split_or_on_other_rows(vocabulary: Vocabulary) -> None:
    _, objective, corrupted = made(vocabulary)
    assert corrupted.draws is not None
    again = objective.corrupt(rows_of(vocabulary), 3)
    assert again.draws is not None and torch.equal(again.draws, corrupted.draws)
    part = corrupted.part(1, 3)
    assert part.draws is not None and torch.equal(part.draws, corrupted.draws[2:4])
    assert (
        len(corrupted.draws.unique()) > 0.9 * corrupted.draws.numel()
        and 0 <= float(corrupted.draws.min()) < float(corrupted.draws.max()) < 1
    )


def test_losses_equal_those_of_transformers(vocabulary: Vocabulary) -> None:
    """ElectraForMaskedLM and ElectraForPreTraining with the same weights, on the same samples."""
    transformers = pytest.importorskip("transformers")
    encoder, objective, corrupted = made(vocabulary)
    batch, real = corrupted.batch, (corrupted.batch.pieces != 0).long()
    ours = objective(encoder, corrupted)

    def theirs(kind: str, network: Any, head: dict[str, torch.Tensor] | None) -> Any:
        state = {**encoder.state_dict(), **network.state_dict()}
        config, weights = to_hugging_face("bert", network.shape, state, head)
        model = getattr(transformers, kind)(
            transformers.ElectraConfig(**{**config, "embedding_size": 32})
        ).eval()
        return model, weights

    small = objective.generator
    generator, weights = theirs("ElectraForMaskedLM", small.network, small.prediction.state_dict())
    assert not generator.load_state_dict(weights, strict=False).unexpected_keys
    places, answers, draws = corrupted.drawn_places()
    labels = torch.full_like(batch.ids, NONE)
    labels.view(-1)[places] = answers
    with torch.no_grad():
        found = generator(input_ids=batch.ids, attention_mask=real, labels=labels)
    torch.testing.assert_close(ours["generator"] / len(places), found.loss, atol=1e-5, rtol=1e-5)

    discriminator, weights = theirs("ElectraForPreTraining", encoder, None)
    weights = {f"electra.{name}": value for name, value in weights.items()}
    heads = {
        "dense": "discriminator_predictions.dense",
        "out": "discriminator_predictions.dense_prediction",
    }
    for name, value in objective.judgement.state_dict().items():
        part, leaf = name.split(".")
        weights[f"{heads[part]}.{leaf}"] = value
    assert not discriminator.load_state_dict(weights, strict=False).unexpected_keys
    logits = found.logits.view(-1, found.logits.shape[-1])[places]
    shown = noised(batch, places, answers, sample(logits[:, : len(vocabulary)], draws))
    assert 0 < int(shown.replaced.sum()) <= len(places)
    with torch.no_grad():
        judged = discriminator(
            input_ids=shown.batch.ids, attention_mask=real, labels=shown.replaced.long()
        )
    torch.testing.assert_close(
        ours["discriminator"] / real.sum(), judged.loss, atol=1e-5, rtol=1e-5
    )


def test_flops_are_the_generators_and_the_encoders(vocabulary: Vocabulary) -> None:
    _, objective, corrupted = made(vocabulary)
    cost = EncoderCost(2, 64, 128, len(vocabulary) + 12, 32, embedding=32, heads=2)
    tokens, targets = corrupted.batch.ids.numel(), corrupted.targets()
    small = EncoderCost(2, 64, 256, len(vocabulary) + 12, 32, embedding=32, heads=1)
    wanted = small.training(tokens, targets, 24, wanted=targets) + cost.training(
        tokens, 0, 24, judged=tokens
    )
    assert objective.flops(cost, corrupted) == wanted


def test_the_generator_is_narrow_and_reads_the_encoders_embeddings() -> None:
    small = Shape(30_528, 12, 256, 4, 1024, 128, embedding=128)
    narrow = generator_shape("bert", small, 0.25)
    assert (narrow.width, narrow.heads, narrow.feedforward, narrow.layers, narrow.token_width) == (
        64,
        1,
        256,
        12,
        128,
    )
    base = generator_shape(
        "bert", replace(small, width=768, heads=12, feedforward=3072, embedding=0), 1 / 3
    )
    assert (base.width, base.heads, base.token_width, base.embedding) == (256, 4, 768, 768)


def test_the_sum_of_both_begins_as_large_as_masked_language_modelling() -> None:
    types, rate = 8000, 0.15
    entropy = float(functional.binary_cross_entropy(torch.tensor(rate), torch.tensor(rate)))
    for weight in (50.0, 5.0):
        assert (math.log(types) + weight * entropy) / loss_scale(
            weight, rate, types
        ) == pytest.approx(math.log(types), rel=1e-4)


def test_electra_15_judges_as_many_tokens_as_are_masked(vocabulary: Vocabulary) -> None:
    encoder, objective, corrupted = made(vocabulary, name="electra-15")
    assert corrupted.judged is not None
    targets = objective.targets(corrupted)
    assert targets["discriminator"] == targets["generator"] == int(corrupted.judged.sum())
    assert not bool((corrupted.judged & (corrupted.batch.pieces == 0)).any())
    picked = torch.zeros_like(corrupted.judged).scatter_(
        1, corrupted.picked, corrupted.answers != NONE
    )
    assert not torch.equal(picked, corrupted.judged)  # others than the masked ones
    shown = objective.generator(encoder, corrupted)
    of_all = objective.judgement.loss(encoder, shown, corrupted.batch.pieces != 0)
    torch.testing.assert_close(
        objective(encoder, corrupted)["discriminator"], of_all[corrupted.judged].sum()
    )


@pytest.mark.parametrize("name", ["electra-unigram", "electra-uniform"])
def test_tokens_replaced_by_chance(vocabulary: Vocabulary, name: str) -> None:
    encoder, objective, _ = made(vocabulary, name=name)
    torch.manual_seed(1)
    batch = rows_of(vocabulary, 400, 32)
    batch.ids[:, 1:26:2] = 9  # 13 of the 25 tokens of a row that are not special
    corrupted = objective.corrupt(batch, 1)
    places, _ = corrupted.places()
    shown = corrupted.batch.ids.flatten()[places]
    assert not bool(torch.isin(shown, torch.tensor(vocabulary.specials)).any())
    share = float((shown == 9).float().mean())
    assert 0.47 < share < 0.57 if name == "electra-unigram" else share < 0.05
    losses = objective(encoder, corrupted)
    assert set(losses) == {"discriminator"} and objective.targets(corrupted) == {
        "discriminator": int((batch.pieces != 0).sum())
    }
    logits = objective.judgement(encoder(corrupted.batch))
    changed = (corrupted.batch.ids != batch.ids).float()
    each = functional.binary_cross_entropy_with_logits(logits, changed, reduction="none")
    torch.testing.assert_close(losses["discriminator"], each[batch.pieces != 0].sum())


def test_parameters_of_electra_small_and_of_ale_are_the_published_ones() -> None:
    """13.5M and 4.8M; ALE is ELECTRA on ALBERT's encoder."""
    electra = EncoderCost(12, 256, 1024, 30_522, 512, embedding=128)
    ale = EncoderCost(12, 256, 1024, 30_522, 512, "albert", embedding=128)
    assert round(electra.parameters / 1e6, 1) == 13.5 and round(ale.parameters / 1e6, 1) == 4.8


def test_the_adversarial_generator_follows_reinforce(vocabulary: Vocabulary) -> None:
    """Its gradient is that of −Σ log q(sample)·(reward − baseline), written out for the logits."""
    encoder, objective, corrupted = made(vocabulary, name="electra-adversarial", temperature=0.8)
    shown = objective.generator(encoder, corrupted)
    reward = (
        objective.judgement.loss(encoder, shown, corrupted.batch.pieces != 0)
        .detach()
        .flatten()[shown.places]
    )
    baseline = -torch.sigmoid(objective.baseline(shown.states)).log().squeeze(-1).detach()
    losses = objective(encoder, corrupted)
    bias = (
        objective.generator.prediction.bias
    )  # added to the logits: its gradient is the sum of theirs
    (gradient,) = torch.autograd.grad(losses["generator"], bias, retain_graph=True)
    shares = (shown.logits[:, : len(vocabulary)] / 0.8).softmax(-1).detach()
    sampled = functional.one_hot(shown.batch.ids.flatten()[shown.places], len(vocabulary)).float()
    wanted = -((sampled - shares) / 0.8 * (reward - baseline)[:, None]).sum(0)
    torch.testing.assert_close(gradient[: len(vocabulary)], wanted, atol=1e-5, rtol=1e-4)
    assert not bool(gradient[len(vocabulary) :].any())
    p = torch.sigmoid(objective.baseline(shown.states)).squeeze(-1)
    target = (-reward).exp()
    torch.testing.assert_close(
        losses["baseline"],
        -(target * p.log() + (1 - target) * (1 - p).log()).sum(),
        atol=1e-4,
        rtol=1e-4,
    )


def test_the_costs_on_the_page_are_those_of_the_objectives(vocabulary: Vocabulary) -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods" / "electra.md").read_text(
        encoding="utf-8"
    )
    rows = re.findall(
        r"^\| (`.+`)(, first half|, second half|) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE
    )
    assert len(rows) == 9
    shapes = (
        Shape(30_528, 12, 256, 4, 1024, 128, embedding=128),
        Shape(30_528, 12, 768, 12, 3072, 128),
    )
    answers = torch.full((100, 20), 7)
    answers[:80, -1] = NONE  # 1,920 of 12,800 tokens
    ids = torch.full((100, 128), 7)
    corrupted = Corrupted(
        TokenBatch(ids, torch.ones_like(ids), ids), torch.zeros_like(answers), answers
    )
    for names, half, *costs in rows:
        for name, (shape, cost) in itertools.product(
            re.findall(r"`(.+?)`", names), zip(shapes, costs, strict=True)
        ):
            with torch.device("meta"):
                objective = OBJECTIVES.get(name)("bert", shape, vocabulary, Train())
            if half:
                objective.second_half = "second" in half
            flops = objective.flops(cost_of("bert", shape), corrupted) / corrupted.batch.ids.numel()
            assert f"{flops / 1e6:.1f}" == cost, name
