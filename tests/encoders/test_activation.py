from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tasklm.encoders.layers import activation


@pytest.mark.parametrize("slow", [False, True])
def test_gelu_and_its_gradient_are_pytorchs(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    monkeypatch.setattr(activation, "SLOW_GRADIENT", slow)
    spread = torch.linspace(-12, 12, 4001)
    for kind, close in ((torch.float32, 4e-6), (torch.float64, 1e-14)):
        ours, theirs = (spread.to(kind, copy=True).requires_grad_() for _ in range(2))
        found, wanted = activation.gelu(ours), functional.gelu(theirs)
        weights = torch.randn(4001, dtype=kind)
        found.backward(weights)
        wanted.backward(weights)
        assert ours.grad is not None and theirs.grad is not None
        assert torch.equal(found, wanted) and float((ours.grad - theirs.grad).abs().max()) < close


def test_its_gradient_is_that_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "SLOW_GRADIENT", True)
    assert torch.autograd.gradcheck(
        activation.gelu, (torch.randn(6, 5, dtype=torch.float64).mul(2).requires_grad_(),)
    )


def test_where_nothing_is_learnt_pytorchs_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "SLOW_GRADIENT", True)
    linear, hidden = nn.Linear(8, 8), torch.randn(3, 8)
    with torch.no_grad():
        assert torch.equal(
            activation.linear_gelu(linear, hidden, "none"), functional.gelu(linear(hidden))
        )
    assert torch.equal(
        activation.linear_gelu(linear, hidden, "tanh"),
        functional.gelu(linear(hidden), approximate="tanh"),
    )
