"""The kernels of token_losses beside PyTorch's cross-entropy; they need a GPU
(interpreted_kernels.py has them without one).
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasklm.encoders.base import Shape
from tasklm.objectives.parts import prediction
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.tokens.masking import NONE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(("states", "types"), [(7, 200), (300, 9024), (513, 30592)])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_loss_with_all_gradients_on_a_gpu(states: int, types: int, compiled: bool) -> None:
    assert prediction.token_losses is not None, (
        "triton is not installed, though PyTorch for GPUs brings it"
    )
    torch.manual_seed(types)
    head = TokenPrediction("bert", Shape(types, 1, 64, 1, 128, 16)).cuda()
    tokens = nn.Embedding(types, 64).cuda()
    nn.init.normal_(head.bias)
    answers = torch.randint(types, (states,), device="cuda")
    answers[::3] = NONE
    hidden = torch.randn(states, 64, device="cuda")
    call = torch.compile(head.loss, fullgraph=True, dynamic=False) if compiled else head.loss
    outcomes = []
    for fused in (False, True):
        given = hidden.clone().requires_grad_()
        head.zero_grad()
        tokens.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=fused):
            loss = call(given, tokens, answers) if fused else head.loss(given, tokens, answers)
        loss.backward()
        outcomes.append(
            [loss.detach(), given.grad, head.bias.grad, head.dense.weight.grad, tokens.weight.grad]
        )
    for exact, ours in zip(*outcomes, strict=True):
        assert exact is not None and ours is not None
        assert float((ours - exact).norm() / exact.norm()) < 0.02
