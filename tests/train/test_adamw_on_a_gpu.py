"""AdamW's kernel beside PyTorch's AdamW, and what waits for a GPU; it needs one
(interpreted_kernels.py has the kernel without).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from tasklm.train.optim import adamw
from tasklm.train.optim.adamw import FusedAdamW
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.muon import Muon

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@contextmanager
def nobody_waiting() -> Iterator[None]:
    """Raises an error where something inside waits for the GPU, which then idles until the next
    launch.
    """
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_steps_are_those_of_pytorch_on_a_gpu() -> None:
    assert adamw.adamw_kernel is not None, (
        "triton is not installed, though PyTorch for GPUs brings it"
    )
    torch.manual_seed(0)
    drawn = [
        torch.randn(size, device="cuda") for size in ((300, 200), (7,), (1,), (4096, 2), (513,))
    ]
    ours, exact = ([nn.Parameter(weight.clone()) for weight in drawn] for _ in range(2))
    groups = [
        {"params": ours[:2], "weight_decay": 0.1, "lr": 0.02},
        {"params": ours[2:], "weight_decay": 0.0},
    ]
    optimiser = FusedAdamW(groups, 0.01)
    peer = torch.optim.AdamW(
        [
            {"params": exact[:2], "weight_decay": 0.1, "lr": 0.02},
            {"params": exact[2:], "weight_decay": 0.0},
        ],
        lr=0.01,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    for step in range(6):
        scale, skipped = torch.tensor(2.0, device="cuda"), step == 3
        for place, (weight, other) in enumerate(zip(ours, exact, strict=True)):
            if step == 1 and place == 3:
                continue  # a parameter without a gradient stays, and is not counted
            unaligned = torch.randn(weight.numel() + 1, device="cuda")[1:].view(weight.shape)
            weight.grad, other.grad = unaligned, unaligned / 2.0
        optimiser.found_inf = torch.tensor(float(skipped), device="cuda")
        optimiser.grad_scale = scale
        with nobody_waiting():
            optimiser.step()
        if not skipped:
            peer.step()
        optimiser.zero_grad(set_to_none=True)
        peer.zero_grad(set_to_none=True)
    for weight, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(weight, other, atol=1e-6, rtol=1e-5)
        for name, value in peer.state[other].items():
            torch.testing.assert_close(
                optimiser.state[weight][name].cpu(), value.cpu(), atol=1e-6, rtol=1e-5
            )


def test_muon_and_averages_wait_for_nothing_either() -> None:
    layer = nn.Linear(32, 16, bias=False, device="cuda")
    optimiser = Muon([{"params": [layer.weight], "weight_decay": 0.1}], 0.01)
    average = WeightAverage(layer, 0.9)
    no, two = torch.tensor(0.0, device="cuda"), torch.tensor(2.0, device="cuda")
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn_like(layer.weight)
    with nobody_waiting():
        optimiser.found_inf, optimiser.grad_scale = no, two
        optimiser.step()
        average.update(no)
    assert not torch.equal(before, layer.weight)
