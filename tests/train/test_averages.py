from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tasklm.errors import RunError
from tasklm.train.optim.averages import WeightAverage


def model() -> nn.Module:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module.register_parameter(
        "fixed", nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
    )  # integers have no average
    return module


def floats(module: nn.Module) -> dict[str, Tensor]:
    return {
        name: weight.detach().clone()
        for name, weight in module.named_parameters()
        if weight.is_floating_point()
    }


@torch.no_grad()
def disturb(module: nn.Module) -> None:
    for weight in module.parameters():
        if weight.is_floating_point():
            weight.add_(torch.randn_like(weight))


def test_the_average_is_that_of_a_plain_loop() -> None:
    module = model()
    average = WeightAverage(module, 0.3)
    expected = {name: weight.double() for name, weight in floats(module).items()}
    for t in range(6):
        disturb(module)
        average.update()
        kept = min(0.3, (1 + t) / (10 + t))  # 0.1, 0.18, 0.25, then 0.3
        expected = {
            name: kept * expected[name] + (1 - kept) * weight.double()
            for name, weight in floats(module).items()
        }
    with average.applied():
        for name, weight in floats(module).items():
            torch.testing.assert_close(
                weight.double(), expected[name], rtol=1e-5, atol=1e-6, msg=name
            )


def test_a_skipped_update_changes_nothing_and_counts_for_nothing() -> None:
    module = model()
    average, without = WeightAverage(module, 0.9), WeightAverage(module, 0.9)
    for step in range(5):
        disturb(module)
        before = {name: tensor.clone() for name, tensor in average.tensors().items()}
        skipped = step in (0, 3)
        average.update(torch.tensor(float(skipped)))
        if skipped:
            assert all(
                torch.equal(tensor, before[name]) for name, tensor in average.tensors().items()
            )
        else:
            without.update()
    for name, tensor in without.tensors().items():
        assert torch.equal(average.tensors()[name], tensor), name


def test_the_weights_come_back_also_after_an_error() -> None:
    module = model()
    average = WeightAverage(module, 0.99)
    disturb(module)
    own, places = floats(module), [weight.data_ptr() for weight in module.parameters()]
    with pytest.raises(KeyError), average.applied():
        assert not torch.equal(floats(module)["0.weight"], own["0.weight"])
        raise KeyError
    assert all(torch.equal(weight, own[name]) for name, weight in floats(module).items())
    assert [
        weight.data_ptr() for weight in module.parameters()
    ] == places  # compiled graphs hold the addresses


def test_a_restored_average_goes_on_bit_for_bit_and_a_strange_one_is_refused() -> None:
    module = model()
    average = WeightAverage(module, 0.9)
    for _ in range(3):
        disturb(module)
        average.update()
    saved = {name: tensor.clone() for name, tensor in average.tensors().items()}
    other = WeightAverage(module, 0.9)
    other.load(saved)
    disturb(module)
    average.update()
    other.update()
    assert all(
        torch.equal(tensor, average.tensors()[name]) for name, tensor in other.tensors().items()
    )
    with pytest.raises(RunError, match=r"updates is missing.*recipe"):
        other.load({name: tensor for name, tensor in saved.items() if name != "updates"})
