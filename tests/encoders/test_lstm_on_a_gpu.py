"""The Bi-LSTM's layer by cuDNN beside the same layer on the CPU; it needs a GPU, like the tests of
test_attention_on_a_gpu.py.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from tasklm.encoders.layers.lstm import LstmLayer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

ROWS, LENGTH, INPUTS = 5, 19, 24
ATOL, RTOL = 2e-3, 2e-2  # cuDNN multiplies in TF32


def layer_and_text(units: int, width: int) -> tuple[LstmLayer, Tensor, Tensor]:
    """A layer, what it reads, and walls at random places and in the last ones of each row."""
    torch.manual_seed(units)
    walls = torch.rand(ROWS, LENGTH) < 0.15
    walls[:, -3:] = True
    return LstmLayer(INPUTS, units, width), torch.randn(ROWS, LENGTH, INPUTS), walls


def states_and_gradients(layer: LstmLayer, given: Tensor, walls: Tensor) -> list[Tensor]:
    """States of both directions, and gradients of a weighted sum of them."""
    given = given.detach().requires_grad_()
    right, left = layer(given, walls)
    weights = torch.linspace(-1, 1, right.numel(), device=right.device).view_as(right)
    ((right * weights).sum() + (left * weights.flip(0)).sum()).backward()
    assert given.grad is not None
    gradients = [weight.grad for weight in layer.parameters() if weight.grad is not None]
    assert len(gradients) == len(list(layer.parameters()))
    return [value.detach().cpu() for value in (right, left, given.grad, *gradients)]


@pytest.mark.parametrize(("units", "width"), [(32, 32), (40, 16)])
def test_states_and_gradients_are_those_of_the_cpu(units: int, width: int) -> None:
    layer, given, walls = layer_and_text(units, width)
    there = copy.deepcopy(layer).cuda()
    expected = states_and_gradients(layer, given, walls)
    got = states_and_gradients(there, given.cuda(), walls.cuda())
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=ATOL * theirs.abs().max().item(), rtol=RTOL)


def test_a_wall_has_no_state_and_nothing_passes_it() -> None:
    layer, given, walls = layer_and_text(40, 16)
    layer, given, walls = layer.cuda(), given.cuda(), walls.cuda()
    walls[:, 9] = True
    right, left = layer(given, walls)
    assert not right[walls].any() and not left[walls].any()
    other = given.clone()
    other[:, :9] += 1
    assert torch.equal(layer(other, walls)[0][:, 10:], right[:, 10:])
    assert not torch.equal(layer(other, walls)[1][:, :9], left[:, :9])


def test_a_compiled_layer_has_the_same_states() -> None:
    layer, given, walls = layer_and_text(40, 16)
    layer, given, walls = layer.cuda(), given.cuda(), walls.cuda()
    compiled = torch.compile(layer, fullgraph=True, dynamic=False)
    for ours, theirs in zip(compiled(given, walls), layer(given, walls), strict=True):
        torch.testing.assert_close(ours, theirs, atol=ATOL, rtol=RTOL)
