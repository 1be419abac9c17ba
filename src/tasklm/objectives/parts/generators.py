"""The source of replaced tokens: a small network that fills masked positions, or chance.

The network reads the encoder's embeddings, and no gradient passes through its samples (ELECTRA,
arXiv 2003.10555).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.encoders.shapes import default_feedforward
from tasklm.objectives.base import Corrupted, Masks
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary

HEAD_WIDTH = 64  # of a generator's attention


@dataclass
class Noised:
    """A batch in which some tokens may have been replaced."""

    batch: TokenBatch
    places: Tensor  # (targets,): where, in the flattened batch
    answers: Tensor  # (targets,): the original tokens there; NONE where nothing is asked
    replaced: Tensor  # (rows, length) bool: where a token is not the original one
    states: Tensor | None = None  # (targets, width): the generator's at these places
    logits: Tensor | None = None  # (targets, vocabulary): the generator's, which carry its gradient

    def generator_loss(self) -> Tensor:
        """The generator's cross-entropy, summed over the places."""
        assert self.logits is not None
        return functional.cross_entropy(self.logits, self.answers, reduction="sum")


class Generator(nn.Module):
    """An encoder, with embeddings of its own if `tables`, and the head that predicts tokens."""

    def __init__(
        self, encoder: str, shape: Shape, types: int, temperature: float, tables: bool = False
    ) -> None:
        super().__init__()
        self.network = ENCODERS.get(encoder)(shape, tables=tables)
        self.prediction = TokenPrediction(encoder, shape)
        self.types, self.temperature = types, temperature

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> Noised:
        """The batch with a sample of the network in every masked place."""
        places, answers, draws = corrupted.drawn_places()
        states = self.network.contextualise(encoder.embed(corrupted.batch), corrupted.batch, places)
        logits = self.prediction.logits(states, encoder.token).float()
        sampled = sample(logits.detach()[:, : self.types] / self.temperature, draws)
        noisy = noised(corrupted.batch, places, answers, sampled)
        return replace(noisy, states=states, logits=logits)

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step, beside an encoder of this cost."""
        targets, (rows, length) = corrupted.targets(), corrupted.batch.ids.shape
        own_cost = generator_cost(cost, self.network.shape)
        return own_cost.training(rows * length, targets, length, wanted=targets)


class Replacing(nn.Module):
    """Base of the objectives that replace tokens by samples of a generator, which learns too."""

    network: type[nn.Module] = Generator
    hide = "mask"  # what the generator sees at the positions to fill

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__()
        narrow = generator_shape(encoder, shape, settings.generator)
        self.generator: Any = self.network(encoder, narrow, len(vocabulary), settings.temperature)
        self.masks = Masks(vocabulary, shape, settings.mask_rate, self.hide)

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with fresh places, and the random numbers of their samples."""
        return self.masks.draw(batch, seed, draws=True)


def with_generator(
    memory: MemoryCost, cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
) -> MemoryCost:
    """The memory of a training step together with that of a generator."""
    shape = Shape(
        vocabulary=cost.vocabulary,
        layers=cost.layers,
        width=cost.width,
        heads=cost.attention_heads,
        feedforward=cost.feedforward,
        positions=cost.positions,
        embedding=cost.embedding,
    )
    small = generator_cost(cost, generator_shape(cost.kind, shape, settings.generator))
    targets = round(settings.mask_rate * tokens)
    beside = training_bytes(
        small, tokens, targets, length, wanted=targets, optimiser=settings.optimiser, **mode
    )
    return MemoryCost(
        **{name: value + getattr(beside, name) for name, value in vars(memory).items()}
    )


def noised(batch: TokenBatch, places: Tensor, answers: Tensor, tokens: Tensor) -> Noised:
    """The batch with these tokens in the places that ask; the original ones are not replaced."""
    real, flat, shape = answers != NONE, batch.ids.flatten(), batch.ids.shape
    filled = flat.scatter(0, places, torch.where(real, tokens, flat[places]))
    nowhere = torch.zeros_like(flat, dtype=torch.bool)
    replaced = nowhere.scatter(0, places, real & (tokens != answers))
    whole = replace(batch, ids=filled.view(shape))
    return Noised(whole, places, answers, replaced.view(shape))


def sample(logits: Tensor, draws: Tensor) -> Tensor:
    """A token from each row of logits (targets, types), by a random number in [0, 1) (targets,)."""
    below = logits.softmax(-1).cumsum(-1)
    return (below <= draws[:, None] * below[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)


def generator_shape(encoder: str, shape: Shape, share: float) -> Shape:
    """The shape of a generator: as deep, `share` as wide, reading the same embeddings."""
    head = min(HEAD_WIDTH, shape.width)
    width = max(head, round(share * shape.width / head) * head)
    return replace(
        shape,
        width=width,
        heads=width // head,
        feedforward=default_feedforward(encoder, width),
        embedding=0 if shape.token_width == width else shape.token_width,
    )


def generator_cost(cost: EncoderCost, shape: Shape) -> EncoderCost:
    """The cost of a generator beside an encoder; its look-ups are the encoder's, and free."""
    return replace(
        cost,
        width=shape.width,
        feedforward=shape.feedforward,
        embedding=shape.embedding,
        heads=shape.heads,
    )
