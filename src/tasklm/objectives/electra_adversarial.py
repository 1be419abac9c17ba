"""ELECTRA with a generator that learns to deceive (Clark's thesis, section 5.3.4): by REINFORCE,
with a learned baseline.

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
    """The baseline −log σ(wᵀh) of the generator's states h learns to match the reward −log p, as a
    probability p.
    """

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
        """The three losses, summed over their targets; the gradient of the generator's is
        REINFORCE's.
        """
        shown = self.generator(encoder, corrupted)
        losses = self.judgement.loss(encoder, shown, corrupted.judging())
        reward, asked = losses.detach().flatten()[shown.places], shown.answers != NONE
        expected = self.baseline(shown.states).squeeze(-1).float()
        logits = shown.logits[:, : self.generator.types] / self.generator.temperature
        sampled = shown.batch.ids.flatten()[shown.places]
        likely = logits.log_softmax(-1).gather(1, sampled[:, None]).squeeze(1)
        surprise = reward - functional.softplus(-expected.detach())
        matched = functional.binary_cross_entropy_with_logits(
            expected, (-reward).exp(), reduction="none"
        )
        return {
            "generator": -(likely * surprise * asked).sum(),
            "discriminator": losses.sum(),
            "baseline": (matched * asked).sum(),
        }
