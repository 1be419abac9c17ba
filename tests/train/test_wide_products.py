"""Matrix products that leave a compiled graph in 32 bits, and only these, are written so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tasklm.recipe import Hardware
from tasklm.train.hardware import set_up
from tasklm.train.wide_products import WideProducts

LEFT, RIGHT = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(4, 5, dtype=torch.bfloat16)


def leaves(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    return (torch.ops.prims.convert_element_type(left @ right, torch.float32),)


def is_read_inside(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    return (torch.ops.prims.convert_element_type(left @ right, torch.float32) + 1,)


def leaves_in_16_bits_too(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    product = left @ right
    return product, torch.ops.prims.convert_element_type(product, torch.float32)


def is_of_32_bits(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    return (left.float() @ right.float(),)


@pytest.mark.parametrize(("function", "wide"), [(leaves, 1), (is_read_inside, 0), (leaves_in_16_bits_too, 0), (is_of_32_bits, 0)])
def test_the_pass_changes_gradients_of_weights_alone(function: object, wide: int) -> None:
    graph = make_fx(function)(LEFT, RIGHT).graph
    WideProducts()(graph)
    graph.lint()
    assert len(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.dtype)) == wide
    assert len(graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)) == 1 - wide


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("graphs", [False, True])
def test_gradients_of_weights_are_not_rounded_on_a_gpu(graphs: bool) -> None:
    machine, linear = set_up(Hardware(device="cuda", precision="bf16", compile="on")), nn.Linear(256, 128).cuda()
    inputs, weights = torch.randn(512, 256, device="cuda"), torch.randn(512, 128, device="cuda").bfloat16()
    compiled = machine.compiled(lambda given: (linear(given) * weights).float().sum(), graphs)
    with machine.arithmetic():
        loss = compiled(inputs)
    loss.backward()
    exact = weights.double().T @ inputs.bfloat16().double()
    assert linear.weight.grad is not None
    assert float((linear.weight.grad - exact).norm() / exact.norm()) < 1e-4  # rounded to 16 bits: 2e-3
