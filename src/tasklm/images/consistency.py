"""How a network learns from images without labels: cross-view training and virtual adversarial
training, alone or together.

The primary module labels a batch without dropout and without gradient, by the statistics of that
batch. A student learns to agree: each cell of the last feature map by a module of its own
(cross-view; Clark 2021, section 4.4), or the primary module itself where noise is added to the
image (VAT; Miyato et al., arXiv 1704.03976).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.images.network import LEARN, STUDY, TEACH, CellModules, ImageNet
from tasklm.recipe.image import Image
from tasklm.recipe.raw_text import CROSS_VIEW, NO_STUDENT, VAT
from tasklm.registry import nearest
from tasklm.students.vat import LEAST, still

TASK = "task"  # the name of a loss
NONE, RANDOM, ADVERSARIAL = "none", "random", "adversarial"
STUDENTS = (CROSS_VIEW, VAT)


@dataclass(frozen=True)
class Studies:
    """What learns from images without labels, and the noise on them."""

    students: tuple[str, ...] = ()
    noise: str = NONE
    norm: float = 10.0
    probe: float = 1.0  # displacement at which the direction of the noise is looked for
    weight: float | None = None  # of the loss of each cell; None: all together count 1

    @classmethod
    def of(cls, unlabelled: str, settings: Image) -> Studies:
        """The students that finetune.unlabelled names; raises RecipeError for others."""
        names = [name.strip() for name in unlabelled.split(",") if name.strip()]
        students = tuple(name for name in STUDENTS if name in names)
        unknown = [name for name in names if name not in (*STUDENTS, NO_STUDENT)]
        if unknown or (NO_STUDENT in names and students):
            problem = f"finetune.unlabelled = {unlabelled!r}: from images learn cross-view, vat, "
            close = nearest(unknown[0], list(STUDENTS)) if unknown else ""
            raise RecipeError([f"{problem}cross-view,vat or none{close}"])
        noise = settings.noise
        if noise == "auto":
            noise = ADVERSARIAL if VAT in students else NONE
        if VAT in students and noise == NONE:
            problem = "vat agrees with itself about images with noise"
            raise RecipeError([f"image.noise = 'none': {problem}; choose adversarial or random"])
        if noise != NONE and not students:
            problem = f"image.noise = {noise!r}: without finetune.unlabelled nothing reads it"
            raise RecipeError([f"{problem}; leave it out"])
        norm = settings.noise_norm or 0.0  # auto is decided with the plan of a run
        return cls(students, noise, norm, settings.noise_probe, settings.view_weight)

    @property
    def passes(self) -> float:
        """The cost of a batch without labels in forward passes: one to label it, a forward and a
        backward one to find adversarial noise, and three to learn.
        """
        if not self.students:
            return 0.0
        return 6.0 if self.noise == ADVERSARIAL else 4.0


class Studying(nn.Module):
    """All that is trained: the network, and modules that only training needs."""

    def __init__(self, model: ImageNet, studies: Studies) -> None:
        super().__init__()
        self.model = model
        self.cells = CellModules(model.shape) if CROSS_VIEW in studies.students else None


def divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """KL(targets, softmax of logits), for each of the leading dimensions; targets are logs of
    probabilities.
    """
    apart = targets - functional.log_softmax(logits, -1)
    return (targets.exp() * apart).sum(-1)


def unit(noise: Tensor) -> Tensor:
    """Noise (images, …) brought to norm 1 for each image."""
    norms: Tensor = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp(min=LEAST)
    return noise / norms.view(-1, *[1] * (noise.dim() - 1))


def adversarial_direction(
    answer: Callable[[Tensor], Tensor], images: Tensor, targets: Tensor, drawn: Tensor, probe: float
) -> Tensor:
    """The direction (norm 1 for each image) in which the answers to images diverge most from
    `targets`, by one step of power iteration from the directions `drawn`.
    """
    displaced = (probe * unit(drawn)).requires_grad_()
    with torch.enable_grad():
        loss = divergence(targets, answer(images + displaced)).sum()
        (gradient,) = torch.autograd.grad(loss, displaced)
    return unit(gradient.float())


class Losses:
    """The losses of a step: of a labelled batch, and of a batch without labels."""

    def __init__(self, module: Studying, studies: Studies, machine: Machine) -> None:
        self.module, self.studies, self.machine = module, studies, machine
        # each mode and size of batch is compiled once
        self._features = machine.compiled(module.model.features, False)

    def labelled(self, images: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of scaled images, summed."""
        outputs = self.module.model.logits(self._features(images, LEARN))
        return functional.cross_entropy(outputs, labels, reduction="sum")

    def unlabelled(self, images: Tensor) -> dict[str, Tensor]:
        """The divergences of the students on scaled images, summed."""
        model, studies = self.module.model, self.studies
        with torch.no_grad():
            outputs = model.logits(self._features(images, TEACH))
            targets = functional.log_softmax(outputs, -1)
        features = self._features(images + self._noise(images, targets), STUDY)
        losses = {}
        if self.module.cells is not None:
            apart = divergence(targets[:, None], self.module.cells(features))
            weight = 1 / apart.shape[1] if studies.weight is None else studies.weight
            losses[CROSS_VIEW] = weight * apart.sum()
        if VAT in studies.students:
            losses[VAT] = divergence(targets, model.logits(features)).sum()
        return losses

    def _noise(self, images: Tensor, targets: Tensor) -> Tensor:
        """What is added to the images that students read."""
        if self.studies.noise == NONE:
            return torch.zeros_like(images)
        drawn = torch.randn_like(images)
        if self.studies.noise == RANDOM:
            return self.studies.norm * unit(drawn)
        with still(self.module.model):
            direction = adversarial_direction(
                self._answer, images, targets, drawn, self.studies.probe
            )
        return self.studies.norm * direction

    def _answer(self, images: Tensor) -> Tensor:
        """What the primary module says, without dropout."""
        return self.module.model.logits(self._features(images, TEACH))
