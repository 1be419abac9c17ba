from __future__ import annotations

import math

import pytest
import torch

from tasklm.budget.rules import stage1_rate, stage2_rate
from tasklm.recipe.model_sections import Finetune, Moments, Train
from tasklm.recipe.parsing import values_for_key
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tests.train.test_optimizers import draw_gradients, weights, whole

SHARES = [0.5, 1.0, 0.75, 0.1]


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.0), (0.5, 0.3), (0.0, 0.0)])
def test_steps_are_those_of_torchs_sgd(momentum: float, decay: float) -> None:
    ours, theirs = whole(), whole()
    rule = Rule("sgd", 0.02, decay, moments=Moments(sgd_momentum=momentum))
    optimiser = make_optimiser(ours, rule)
    matrices = [one for one in theirs.parameters() if one.ndim >= 2]
    rest = [one for one in theirs.parameters() if one.ndim < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": rest}]
    other = torch.optim.SGD(groups, lr=0.02, momentum=momentum)
    for step, share in enumerate(SHARES):
        draw_gradients(ours, step)
        draw_gradients(theirs, step)
        optimiser.step(share)
        for group in other.param_groups:
            group["lr"] = 0.02 * share
        other.step()
    for key, weight in weights(ours).items():
        torch.testing.assert_close(weight, weights(theirs)[key], msg=key)


def test_each_layer_learns_at_its_own_rate() -> None:
    module = whole()
    start = weights(module)
    optimiser = make_optimiser(module, Rule("sgd", 0.1, 0.0, layer_decay=0.5))
    gradients = draw_gradients(module, 1)
    optimiser.step(1.0)
    for key, rate in (("layers.2.up.weight", 0.1), ("layers.0.up.weight", 0.025)):
        name = f"encoder.{key}"
        expected = start[name] - rate * gradients[name]
        torch.testing.assert_close(weights(module)[name], expected)


def test_a_skipped_step_changes_nothing_and_a_divisor_divides() -> None:
    first, second = whole(), whole()
    ones = make_optimiser(first, Rule("sgd", 0.1, 0.0)), make_optimiser(second, Rule("sgd", 0.1, 0))
    for module, optimiser in zip((first, second), ones, strict=True):
        draw_gradients(module, 1)
        optimiser.step(1.0, torch.zeros(()), torch.tensor(1.0))
    before = weights(first)
    for parameter in first.parameters():
        parameter.grad = torch.full_like(parameter, math.nan)
    ones[0].step(1.0, torch.ones(()))
    assert all(torch.equal(weight, before[key]) for key, weight in weights(first).items())
    draw_gradients(first, 2)
    for parameter in first.parameters():
        assert parameter.grad is not None
        parameter.grad *= 4.0
    ones[0].step(0.5, torch.zeros(()), torch.tensor(4.0))
    draw_gradients(second, 2)
    ones[1].step(0.5)
    for key, weight in weights(first).items():
        torch.testing.assert_close(weight, weights(second)[key], msg=key)


def test_a_restored_state_goes_on_the_same() -> None:
    first, second = whole(), whole()
    one, other = (make_optimiser(module, Rule("sgd", 0.1, 0.0)) for module in (first, second))
    draw_gradients(first, 1)
    one.step(1.0)
    second.load_state_dict(first.state_dict())
    other.load({name: tensor.clone() for name, tensor in one.tensors().items()})
    for module, optimiser in ((first, one), (second, other)):
        draw_gradients(module, 2)
        optimiser.step(1.0)
    assert all(torch.equal(weight, weights(second)[key]) for key, weight in weights(first).items())


def test_the_root_schedule_is_that_of_the_thesis() -> None:
    schedule = Schedule("root", 1000, 0.1)
    for step in (0, 1, 49, 99, 100, 500, 999):
        warm = min(1.0, (step + 1) / 100)
        assert schedule.share(step) == pytest.approx(warm / (1 + 0.005 * math.sqrt(step)))
    assert schedule.share(1000) == 0.0
    before = schedule.share(700)
    schedule.replan(700, 900)
    assert schedule.share(700) == pytest.approx(before) and schedule.share(899) > 0.8


def test_rates_and_keys_of_artefacts() -> None:
    assert stage1_rate(512, "sgd") == stage2_rate(512, "sgd") == 0.5
    assert stage2_rate(256) == stage2_rate(256, "lamb") == 3e-4
    for section in (Train(), Finetune()):
        assert "sgd_momentum" not in values_for_key(section)
