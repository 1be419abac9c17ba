from __future__ import annotations

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.encoders.layers.embeddings import EPSILON
from tests.encoders.samples import rows_of, stir

SHAPE = Shape(vocabulary=50, layers=2, width=32, heads=4, feedforward=64, positions=16, dropout=0.0)


def test_equals_torchs_own_transformer_layers() -> None:
    torch.manual_seed(0)
    bert = Bert(SHAPE).eval()
    stir(bert)
    ids = torch.randint(50, (3, 16))
    hidden = bert.norm(
        bert.token(ids) + bert.position(torch.arange(16)) + bert.segment(torch.zeros_like(ids))
    )
    for ours in bert.layers:
        theirs = nn.TransformerEncoderLayer(
            32, 4, 64, 0.0, "gelu", EPSILON, batch_first=True, norm_first=False
        )
        theirs.self_attn.in_proj_weight = ours.query_key_value.weight
        theirs.self_attn.in_proj_bias = ours.query_key_value.bias
        theirs.self_attn.out_proj = ours.attention_out
        theirs.linear1 = ours.up
        theirs.linear2 = ours.down
        theirs.norm1 = ours.attention_norm
        theirs.norm2 = ours.norm
        hidden = theirs(hidden)  # in training mode: the plain path, not the fused one
    torch.testing.assert_close(bert(rows_of(list(ids))), hidden, atol=1e-5, rtol=1e-5)


def test_exact_flops_agree_with_torchs_counter() -> None:
    bert = Bert(SHAPE).eval()
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),
    ):  # the counter knows this kernel
        bert(rows_of(list(torch.randint(50, (3, 16)))))
    cost = EncoderCost(
        SHAPE.layers, SHAPE.width, SHAPE.feedforward, SHAPE.vocabulary, SHAPE.positions
    )
    assert counter.get_total_flops() == 3 * 16 * cost.forward_per_token(16)


def test_weights_of_the_layers_are_counted_exactly() -> None:
    cost = EncoderCost(
        SHAPE.layers, SHAPE.width, SHAPE.feedforward, SHAPE.vocabulary, SHAPE.positions
    )
    assert cost.hidden_parameters == sum(
        parameter.numel() for parameter in Bert(SHAPE).layers.parameters()
    )
