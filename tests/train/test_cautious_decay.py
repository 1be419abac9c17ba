"""Weight decay where the step also moves a weight towards 0 (arXiv 2510.12402), beside a plain loop
over single numbers.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tasklm.errors import RecipeError
from tasklm.train.optim.muon import orthogonal
from tasklm.train.optim.optimizers import Rule, hidden_matrices, make_optimiser
from tests.train.test_optimizers import draw_gradients, weights, whole

RATE, DECAY, SHARES = 0.02, 0.3, (0.5, 1.0, 0.75, 0.1)


def decayed(weight: float, update: float, rate: float) -> float:
    """A weight after a step: it decays if the update has its sign."""
    decay = DECAY if update * weight >= 0 else 0.0
    return weight - rate * (update + decay * weight)


def plain_adamw(start: Tensor, gradients: list[Tensor]) -> list[float]:
    """AdamW, one number after the other, in double precision."""
    ends = []
    for place, weight in enumerate(start.double().flatten().tolist()):
        mean = square = 0.0
        for t, (gradient, share) in enumerate(zip(gradients, SHARES, strict=True), 1):
            g = float(gradient.flatten()[place])
            mean, square = 0.9 * mean + 0.1 * g, 0.98 * square + 0.02 * g * g
            update = mean / (1 - 0.9**t) / (math.sqrt(square / (1 - 0.98**t)) + 1e-6)
            weight = decayed(weight, update, RATE * share)
        ends.append(weight)
    return ends


def plain_muon(start: Tensor, gradients: list[Tensor]) -> list[float]:
    """Muon: the update of a whole matrix, then one number after the other."""
    weight, momentum = start.double(), torch.zeros_like(start)
    size = 0.2 * math.sqrt(max(start.shape))
    for gradient, share in zip(gradients, SHARES, strict=True):
        momentum = 0.95 * momentum + 0.05 * gradient
        update = size * orthogonal((0.05 * gradient + 0.95 * momentum)[None])[0].double()
        pairs = zip(weight.flatten().tolist(), update.flatten().tolist(), strict=True)
        moved = [decayed(one, change, RATE * share) for one, change in pairs]
        weight = torch.tensor(moved, dtype=torch.float64).view_as(weight)
    return weight.flatten().tolist()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_steps_are_those_of_a_plain_loop(name: str) -> None:
    module = whole()
    start, history = weights(module), []
    optimiser = make_optimiser(module, Rule(name, RATE, DECAY, cautious=True))
    for step, share in enumerate(SHARES):
        history.append(draw_gradients(module, step))
        optimiser.step(share)
        optimiser.zero_grad()
    hidden = hidden_matrices(module) if name == "muon" else set()
    for key, weight in weights(module).items():
        if weight.ndim < 2:
            continue  # does not decay at all
        gradients = [one[key] for one in history]
        by_hand = plain_muon if key in hidden else plain_adamw
        expected = torch.tensor(by_hand(start[key], gradients)).view_as(weight)
        torch.testing.assert_close(weight, expected.float(), rtol=1e-4, atol=5e-6, msg=key)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_it_is_between_no_decay_and_the_usual(name: str) -> None:
    ends = []
    for decay, cautious in ((0.0, False), (DECAY, True), (DECAY, False)):
        module = whole()
        optimiser = make_optimiser(module, Rule(name, RATE, decay, cautious=cautious))
        draw_gradients(module, 1)
        optimiser.step(1.0)
        ends.append(torch.cat([one.flatten() for one in weights(module).values() if one.ndim > 1]))
    none, some, usual = ends
    assert bool(((some == none) | (some == usual) | torch.isclose(some, usual)).all())
    assert 0.3 < float((some != none).float().mean()) < 0.7


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_skipped_step_changes_no_bit(name: str) -> None:
    module = whole()
    optimiser = make_optimiser(module, Rule(name, RATE, DECAY, cautious=True))
    draw_gradients(module, 1)
    optimiser.step(1.0)
    before = weights(module)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    optimiser.step(1.0, torch.tensor(1.0))
    assert all(torch.equal(weight, before[key]) for key, weight in weights(module).items())


@pytest.mark.parametrize("name", ["lamb", "sgd"])
def test_others_refuse_it(name: str) -> None:
    with pytest.raises(RecipeError, match=f"{name} does not do it; choose adamw or muon"):
        make_optimiser(whole(), Rule(name, RATE, DECAY, cautious=True))
