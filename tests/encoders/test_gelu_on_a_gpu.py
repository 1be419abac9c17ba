"""The kernels of biased_gelu beside PyTorch's GELU; they need a GPU, like those of
test_attention_on_a_gpu.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tasklm.encoders.layers import activation
from tasklm.encoders.layers.activation import linear_gelu

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(("tokens", "width"), [((7, 33), 200), ((64, 128), 1024)])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_linear_map_and_gelu_with_all_gradients_on_a_gpu(
    tokens: tuple[int, int], width: int, compiled: bool
) -> None:
    assert activation.biased_gelu is not None, (
        "triton is not installed, though PyTorch for GPUs brings it"
    )
    torch.manual_seed(width)
    linear = nn.Linear(64, width).cuda()
    nn.init.normal_(linear.bias)
    hidden = torch.randn(*tokens, 64, device="cuda")
    weights = torch.randn(*tokens, width, device="cuda")
    call = torch.compile(linear_gelu, fullgraph=True, dynamic=False) if compiled else linear_gelu
    outcomes = []
    for fused in (False, True):
        given = hidden.clone().requires_grad_()
        linear.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=fused):
            found = call(linear, given, "none") if fused else functional.gelu(linear(given))
        (found.float() * weights).sum().backward()
        outcomes.append([found.float().detach(), given.grad, linear.weight.grad, linear.bias.grad])
    for exact, ours in zip(*outcomes, strict=True):
        assert exact is not None and ours is not None
        assert float((ours - exact).norm() / exact.norm()) < 0.01
