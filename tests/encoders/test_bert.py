from __future__ import annotations

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tasklm.budget import EncoderCost
from tasklm.encoders.base import Shape
from tasklm.encoders.bert import EPSILON, Bert
from tasklm.encoders.sizes import SIZES, shape_of
from tasklm.recipe import Model
from tasklm.tokens.batches import TokenBatch

SHAPE = Shape(vocabulary=50, layers=2, width=32, heads=4, feedforward=64, positions=16, dropout=0.0)


def whole(ids: torch.Tensor) -> TokenBatch:
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    return TokenBatch(ids, torch.ones_like(ids), positions)


def test_equals_torchs_own_transformer_layers() -> None:
    torch.manual_seed(0)
    bert = Bert(SHAPE).eval()
    for parameter in bert.parameters():  # biases and norms too, so that nothing is compared at its neutral value
        nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(50, (3, 16))
    hidden = bert.norm(bert.token(ids) + bert.position(torch.arange(16)))
    for ours in bert.layers:
        theirs = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", EPSILON, batch_first=True, norm_first=False)
        theirs.self_attn.in_proj_weight, theirs.self_attn.in_proj_bias = ours.query_key_value.weight, ours.query_key_value.bias
        theirs.self_attn.out_proj = ours.attention_out
        theirs.linear1, theirs.linear2, theirs.norm1, theirs.norm2 = ours.up, ours.down, ours.attention_norm, ours.norm
        hidden = theirs(hidden)  # in training mode: the plain path, not the fused one
    torch.testing.assert_close(bert(whole(ids)), hidden, atol=1e-5, rtol=1e-5)


def test_padding_and_packing_change_no_result() -> None:
    torch.manual_seed(1)
    bert = Bert(SHAPE).eval()
    first, second = torch.randint(5, 50, (1, 6)), torch.randint(5, 50, (1, 7))
    alone = [bert(whole(ids))[0] for ids in (first, second)]
    packed = TokenBatch(
        ids=torch.cat([first, second, torch.zeros(1, 3, dtype=torch.long)], 1),
        pieces=torch.tensor([[1] * 6 + [2] * 7 + [0] * 3]),
        positions=torch.tensor([[*range(6), *range(7), 0, 0, 0]]),
    )
    hidden = bert(packed)[0]
    torch.testing.assert_close(hidden[:6], alone[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(hidden[6:13], alone[1], atol=1e-5, rtol=1e-5)
    assert bool(hidden.isfinite().all())


def test_parameters_are_counted_exactly_and_base_is_the_papers() -> None:
    for size in ("tiny", "small"):
        shape = shape_of(Model(), size, vocabulary=1000, positions=128)
        cost = EncoderCost(shape.layers, shape.width, shape.feedforward, shape.vocabulary, shape.positions)
        assert cost.parameters == sum(parameter.numel() for parameter in Bert(shape).parameters())
    assert SIZES["base"] == (12, 768)
    base = EncoderCost(12, 768, 3072, 30_522, 512)
    assert abs(base.parameters - 109e6) < 1e6  # "109M" in the paper


def test_exact_flops_agree_with_torchs_counter() -> None:
    bert = Bert(SHAPE).eval()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # the counter knows this kernel
        bert(whole(torch.randint(50, (3, 16))))
    cost = EncoderCost(SHAPE.layers, SHAPE.width, SHAPE.feedforward, SHAPE.vocabulary, SHAPE.positions)
    assert counter.get_total_flops() == 3 * 16 * cost.forward_per_token(16)
