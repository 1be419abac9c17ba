"""ELECTRA with a generator that learns to deceive, by REINFORCE (Clark's thesis, section 5.3.4).

The reward of a sample is the discriminator's loss on it. It is assumed not to depend on the other
samples.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import Encoder, Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.electra import Electra
from tasklm.recipe.model_sections import Train
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("electra-adversarial")
class Adversarial(Electra):
    """The baseline −log σ(wᵀh) of the generator's states h learns to match the reward −log p."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape, vocabulary, settings)
        width = self.generator.network.shape.width
        self.baseline = nn.Linear(width, 1, bias=False)
        draw_weights(self.baseline, initial_spread(width))
        self.weights["baseline"] = self.weights["generator"]

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The numbers of samples, twice, and of all tokens."""
        return {**super().targets(corrupted), "baseline": corrupted.targets()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The three losses, summed over their targets; the generator's has REINFORCE's gradient."""
        noisy = self.generator(encoder, corrupted)
        losses = self.judgement.loss(encoder, noisy, corrupted.judging())
        reward, real = losses.detach().flatten()[noisy.places], noisy.answers != NONE
        expected = self.baseline(noisy.states).squeeze(-1).float()
        logits = noisy.logits[:, : self.generator.types] / self.generator.temperature
        sampled = noisy.batch.ids.flatten()[noisy.places]
        likely = logits.log_softmax(-1).gather(1, sampled[:, None]).squeeze(1)
        surprise = reward - functional.softplus(-expected.detach())
        matched = functional.binary_cross_entropy_with_logits(
            expected, (-reward).exp(), reduction="none"
        )
        return {
            "generator": -(likely * surprise * real).sum(),
            "discriminator": losses.sum(),
            "baseline": (matched * real).sum(),
        }
