"""What learns from images without labels, against computations of another kind."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.images.consistency import (
    ADVERSARIAL,
    RANDOM,
    Losses,
    Studies,
    Studying,
    adversarial_direction,
    divergence,
    unit,
)
from tasklm.images.network import LEARN, STUDY, TEACH, ImageNet, NetShape
from tasklm.recipe.image import Image
from tasklm.recipe.raw_text import CROSS_VIEW

MACHINE = Machine(torch.device("cpu"), False, 1)


def losses_of(studies: Studies, dropout: float = 0.0) -> Losses:
    torch.manual_seed(3)
    model = ImageNet(NetShape(16, 4, 3), dropout)
    model.features(torch.randn(16, 3, 16, 16), LEARN)
    return Losses(Studying(model, studies), studies, MACHINE)


def test_the_divergence_is_that_of_scipy() -> None:
    targets, outputs = torch.randn(5, 4).log_softmax(-1), torch.randn(5, 4)
    wanted = scipy.stats.entropy(
        targets.exp().numpy(), scipy.special.softmax(outputs.numpy(), -1), axis=-1
    )
    np.testing.assert_allclose(divergence(targets, outputs).numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_adversarial_noise_has_the_direction_of_an_explicit_power_iteration() -> None:
    """On a small network in double precision, one step from a random direction d is H d / |H d|
    with H the Hessian of the divergence at no noise, here by differences of the divergence itself.
    """
    torch.manual_seed(0)
    weight = torch.randn(3, 6, dtype=torch.float64)

    def answer(images: torch.Tensor) -> torch.Tensor:
        return torch.tanh(images) @ weight.T

    image, drawn = torch.randn(1, 6, dtype=torch.float64), torch.randn(1, 6, dtype=torch.float64)
    targets = answer(image).log_softmax(-1)

    def apart(noise: np.ndarray) -> float:
        moved = image + torch.from_numpy(noise)[None]
        return float(divergence(targets, answer(moved)).sum())

    step = 1e-3
    hessian = np.empty((6, 6))
    axes = np.eye(6) * step
    for one in range(6):
        for other in range(6):
            corners = [
                (signs[0] * signs[1]) * apart(signs[0] * axes[one] + signs[1] * axes[other])
                for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1))
            ]
            hessian[one, other] = sum(corners) / (4 * step * step)
    wanted = hessian @ unit(drawn).numpy()[0]
    wanted /= np.linalg.norm(wanted)
    direction = adversarial_direction(answer, image, targets, drawn, 1e-4).double().numpy()[0]
    np.testing.assert_allclose(direction, wanted, atol=2e-3)


def test_adversarial_noise_disturbs_more_than_random_noise_of_the_same_norm() -> None:
    apart = {}
    images = torch.randn(16, 3, 16, 16)
    for noise in (RANDOM, ADVERSARIAL):
        losses = losses_of(Studies(("vat",), noise, norm=3.0, probe=0.1))
        torch.manual_seed(5)
        apart[noise] = float(losses.unlabelled(images)["vat"].detach())
    assert apart[ADVERSARIAL] > 1.5 * apart[RANDOM] > 0


@pytest.mark.parametrize("share", [0.5, None])
def test_each_cell_is_compared_with_the_whole_image(share: float | None) -> None:
    losses = losses_of(Studies((CROSS_VIEW,), weight=share))
    images = torch.randn(4, 3, 16, 16)
    own = losses.unlabelled(images)[CROSS_VIEW].detach()
    model, cells = losses.module.model, losses.module.cells
    assert cells is not None
    with torch.no_grad():
        whole = scipy.special.softmax(model.logits(model.features(images, TEACH)).numpy(), -1)
        maps = model.features(images, STUDY).numpy()
    total = 0.0
    for image in range(4):
        for cell in range(model.shape.cells):
            row, column = divmod(cell, model.shape.side)
            vector = maps[image, :, row, column]
            weight, bias = cells.weight[cell].detach().numpy(), cells.bias[cell].detach().numpy()
            guess = scipy.special.softmax(weight @ vector + bias)
            total += (share or 1 / model.shape.cells) * scipy.stats.entropy(whole[image], guess)
    assert float(own) == pytest.approx(total, rel=1e-4)


def test_the_primary_module_learns_nothing_from_cross_view() -> None:
    losses = losses_of(Studies((CROSS_VIEW,)))
    losses.unlabelled(torch.randn(4, 3, 16, 16))[CROSS_VIEW].backward()
    model = losses.module.model
    assert model.head.weight.grad is None
    assert model.layers[0].convolution.weight.grad.abs().sum() > 0


def test_noise_leaves_no_gradient_on_weights() -> None:
    losses = losses_of(Studies(("vat",), ADVERSARIAL, 2.0), dropout=0.5)
    losses.unlabelled(torch.randn(4, 3, 16, 16))
    assert all(weight.grad is None for weight in losses.module.parameters())
    assert all(weight.requires_grad for weight in losses.module.parameters())


@pytest.mark.parametrize(
    ("unlabelled", "settings", "told"),
    [
        ("word-dropout", Image(), "cross-view, vat"),
        ("vat,none", Image(), "cross-view, vat"),
        ("vat", Image(noise="none"), "adversarial or random"),
        ("none", Image(noise="random"), "leave it out"),
    ],
)
def test_what_does_not_fit_together_is_refused(unlabelled: str, settings: Image, told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        Studies.of(unlabelled, settings)


def test_both_students_share_adversarial_noise() -> None:
    both = Studies.of("vat, cross-view", Image())
    assert both.students == (CROSS_VIEW, "vat")
    assert both.noise == ADVERSARIAL
    assert Studies.of("cross-view", Image()).noise == "none"
