"""The kernels of residual_norm beside PyTorch's sums and norms; they need a GPU, like those of
test_attention_on_a_gpu.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tasklm.encoders.layers import residual
from tasklm.encoders.layers.residual import Hidden, add_and_norm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Chain(nn.Module):
    """Some linear maps, each with its residual and norm: the states of one are read twice by the
    next.
    """

    def __init__(self, width: int, length: int, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(length))
        self.norms = nn.ModuleList(nn.LayerNorm(width, 1e-12) for _ in range(length))
        self.dropout = nn.Dropout(dropout)
        for norm in self.norms:
            nn.init.normal_(norm.weight, 1.0, 0.3)
            nn.init.normal_(norm.bias)
        self.cuda()

    def forward(self, given: Tensor) -> Tensor:
        """The states after the last norm."""
        hidden = Hidden(given, given)
        for linear, norm in zip(self.linears, self.norms, strict=True):
            hidden = add_and_norm(linear, hidden.states, hidden.residual, norm, self.dropout)
        return hidden.states


def outcome(
    chain: nn.Module, module: nn.Module, given: Tensor, weights: Tensor, bf16: bool
) -> list[Tensor]:
    """The states and all gradients."""
    own = given.clone().requires_grad_()
    module.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
        states = chain(own)
    assert not bf16 or states.dtype == torch.bfloat16
    (states.to(weights.dtype) * weights).sum().backward()
    gradients = [own.grad, *(weight.grad for weight in module.parameters())]
    return [
        states.detach().double(),
        *(gradient.double() for gradient in gradients if gradient is not None),
    ]


def errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Each difference's share of what is exact."""
    return [
        float((one - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)
    ]


@pytest.mark.parametrize(
    ("tokens", "width"), [((7, 33), 200), ((1001,), 312), ((64, 128), 768), ((3, 700), 1024)]
)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_kernels_are_as_exact_as_pytorch_on_a_gpu(
    tokens: tuple[int, ...], width: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states that come in have 32 bits after the embeddings, and else 16."""
    assert residual.residual_norm is not None, (
        "triton is not installed, though PyTorch for GPUs brings it"
    )
    chain = Chain(width, 2)
    given = torch.randn(*tokens, width, device="cuda").to(kind)
    weights = torch.randn(*tokens, width, device="cuda")
    ours = outcome(chain, chain, given, weights, bf16=True)
    monkeypatch.setattr(residual, "residual_norm", None)
    theirs = outcome(chain, chain, given, weights, bf16=True)
    exact = outcome(chain.double(), chain, given.double(), weights.double(), bf16=False)
    for mine, other in zip(errors(ours, exact), errors(theirs, exact), strict=True):
        assert (
            mine < 0.01 and mine < 1.15 * other
        )  # by rounding alone, one may be a little better or worse


def test_kernels_compiled_with_graphs_give_the_same_on_a_gpu() -> None:
    torch._dynamo.reset()
    counters.clear()
    chain = Chain(768, 3)
    given = torch.randn(16, 128, 768, device="cuda")
    weights = torch.randn(16, 128, 768, device="cuda")
    compiled = torch.compile(chain, fullgraph=True, dynamic=False, mode="reduce-overhead")
    plain = outcome(chain, chain, given, weights, bf16=True)
    repeated = [
        [part.clone() for part in outcome(compiled, chain, given, weights, bf16=True)]
        for _ in range(4)
    ]
    assert counters["inductor"]["cudagraph_skips"] == 0
    assert all(
        torch.equal(one, other)
        for later in repeated[1:]
        for one, other in zip(repeated[0], later, strict=True)
    )
    assert max(errors(repeated[0], plain)) < 0.01


def test_kernels_pass_pytorchs_own_checks_on_a_gpu() -> None:
    from tasklm.encoders.kernels import residual_norm as kernels

    states = torch.randn(40, 192, device="cuda", dtype=torch.bfloat16)
    vector = torch.randn(192, device="cuda")
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        kernels.residual_norm_of, (states, states, vector, vector, vector, 1e-12), test_utils=checks
    )
    torch.library.opcheck(
        kernels.residual_norm_gradient,
        (states, torch.rand(40, device="cuda"), vector, states, states),
        test_utils=checks,
    )


def test_dropout_goes_to_pytorch_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(residual, "residual_norm", refused)
    chain, given = Chain(64, 1, dropout=0.1), torch.randn(5, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert not torch.equal(chain(given), chain(given))
        with pytest.raises(NotImplementedError):
            chain.eval()(given)
