"""Electric (*Pre-Training Transformers as Energy-Based Cloze Models*, arXiv 2012.08561): an energy
for every token in its context.

p̂(x_t | context) = exp(−E_t) with E_t = wᵀh_t of the unmasked text. It is learnt by
noise-contrastive estimation: k of the n tokens of a row are replaced by samples of q, and a token
is noise with probability

    k·q / (k·q + (n − k)·p̂) = σ(E_t + log(k·q(x_t) / (n − k))).

The prior odds of noise are k to n − k, since n − k tokens of a row are data; the paper writes n in
one place and n − k in another. q is that of the text with its samples, which is what the energies
see: with q of the text before, a data token whose neighbour was replaced would be distinguished
from noise by a context that its energy does not see. A sample that happens to be the original token
is noise all the same, unlike in ELECTRA: that is what makes p̂ the probability of the data. Special
tokens are neither replaced nor judged.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted, Masks
from tasklm.objectives.electra import Electra, loss_scale
from tasklm.objectives.parts.generators import generator_shape, with_generator
from tasklm.objectives.parts.two_towers import TwoTowers
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("electric")
class Electric(nn.Module):
    """Owns the noise and the vector of the energies."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__()
        types = len(vocabulary)
        self.noise = TwoTowers(
            encoder,
            generator_shape(encoder, shape, settings.generator),
            types,
            settings.temperature,
        )
        self.energy = nn.Linear(shape.width, 1)
        draw_weights(self.energy, initial_spread(shape.width))
        self.masks = Masks(vocabulary, shape, settings.mask_rate, "nothing")
        scale = loss_scale(settings.judgement, settings.mask_rate, types)
        self.weights = {"noise": 1.0 / scale, "energy": settings.judgement / scale}

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch as it is, with fresh places, the random numbers of their samples, and the
        tokens to judge.
        """
        ordinary = torch.from_numpy(~self.masks.rule.special[batch.ids.numpy()])
        return replace(
            self.masks.draw(batch, seed, draws=True), judged=ordinary & (batch.pieces != 0)
        )

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The numbers of samples and of judged tokens."""
        return {"noise": corrupted.targets(), "energy": corrupted.judged_tokens()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The noise's cross-entropy and the loss of the contrast, summed over their targets."""
        noisy = self.noise(encoder, corrupted)
        shape = noisy.batch.ids.shape
        log_q = self.noise.log_probabilities(encoder, noisy.batch)
        logits = self.energies(encoder, noisy.batch) + log_q + noise_odds(corrupted)
        nothing = torch.zeros(shape.numel(), dtype=torch.bool, device=logits.device)
        sampled = nothing.scatter(0, noisy.places, noisy.answers != NONE)
        of_each = functional.binary_cross_entropy_with_logits(
            logits, sampled.view(shape).float(), reduction="none"
        )
        return {"noise": noisy.generator_loss(), "energy": (of_each * corrupted.judging()).sum()}

    def energies(self, encoder: Encoder, batch: TokenBatch) -> Tensor:
        """The energy of every token (rows, length): −log p̂ of it in its context."""
        energies: Tensor = self.energy(encoder(batch))
        return energies.squeeze(-1).float()

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: both towers and the encoder."""
        rows, length = corrupted.batch.ids.shape
        tokens = rows * length
        noise = self.noise.flops(cost, corrupted)
        noise += self.noise.log_probability_flops(cost, corrupted)
        return noise + cost.training(tokens, 0, length) + 3.0 * tokens * 2 * cost.width

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a step: the encoder's, two towers', and for a moment all logits in fp32."""
        own = training_bytes(cost, tokens, 0, length, optimiser=settings.optimiser, **mode)
        one = with_generator(own, cost, settings, tokens, length, **mode)
        both = with_generator(one, cost, settings, tokens, length, **mode)
        return replace(both, logits=both.logits + 4.0 * tokens * cost.vocabulary)


def noise_odds(corrupted: Corrupted) -> Tensor:
    """log(k / (n − k)) of each row (rows, 1): k tokens are noise, n − k are data."""
    noise = (corrupted.answers != NONE).sum(1, keepdim=True)
    data = (corrupted.judging().sum(1, keepdim=True) - noise).clamp(min=1)
    return noise.float().clamp(min=1e-6).log() - data.float().log()


@OBJECTIVES.register("electra-tt")
class ElectraTwoTowers(Electra):
    """ELECTRA-TT: with Electric's noise, judgements give probabilities of tokens in one pass."""

    network = TwoTowers
    hide = "nothing"

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: the encoder's and two towers'."""
        one = Electra.memory(cost, settings, tokens, length, **mode)
        return with_generator(one, cost, settings, tokens, length, **mode)
