"""Two-stream attention (XLNet, arXiv 1906.08237, section 2.3).

The content stream reads tokens, the query stream predicts some of them. Both run through the same
layers. A query starts without its token and attends only to the content stream, so that nothing
sees a query. The query stream exists only at the target positions, not at all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import Encoder
from tasklm.encoders.layers.embeddings import SummedEmbeddings
from tasklm.tokens.batches import TokenBatch


@dataclass
class Streams:
    """The targets of the query stream, and which tokens both streams see."""

    vector: Tensor  # (token width,): what a query has in place of its token's embedding
    picked: Tensor  # (rows, places) int64: columns of the targets
    seen_by_content: Tensor  # (rows, 1, length, length) bool; no row of it is empty
    seen_by_queries: Tensor  # (rows, 1, places, length) bool; no row of it is empty


class TwoStreamEncoder(Encoder, Protocol):
    """An encoder whose layers can be run with both streams."""

    def two_streams(self, batch: TokenBatch, streams: Streams) -> Tensor:
        """The states of the query stream (rows, places, width)."""
        ...


def embed_queries(encoder: SummedEmbeddings, batch: TokenBatch, streams: Streams) -> Tensor:
    """The embeddings of the queries (rows, places, token width): vector, segment and position."""
    picked = streams.picked
    segment = encoder.segment.weight[0]
    if batch.segments is not None:
        segment = encoder.segment(batch.segments.gather(1, picked))
    summed = streams.vector + segment + encoder.position(batch.positions.gather(1, picked))
    embedded: Tensor = encoder.dropout(encoder.norm(summed))
    return embedded


def project(
    query_key_value: nn.Linear, states: Tensor, heads: int, first: int = 0, last: int = 2
) -> Tensor:
    """Queries (0), keys (1) and values (2) of states (rows, tokens, width), or some of the three.

    They come as (rows, tokens, some, heads, head width).
    """
    rows, tokens, width = states.shape
    if (first, last) == (0, 2):
        return torch.as_tensor(query_key_value(states)).view(rows, tokens, 3, heads, width // heads)
    some = slice(first * width, (last + 1) * width)
    bias: Tensor | None = query_key_value.bias
    if bias is not None:
        bias = bias[some]
    projected = functional.linear(states, query_key_value.weight[some], bias)
    return projected.view(rows, tokens, last + 1 - first, heads, width // heads)


def attend_streams(asking: Tensor, split: Tensor, streams: Streams) -> tuple[Tensor, Tensor | None]:
    """softmax(QKᵀ/√d)·V over what is seen: queries (rows, places, width) and content.

    `asking` (rows, places, 1, heads, head width) are the query stream's, `split` (rows, length, 3,
    heads, head width) the content's. Where that has keys and values alone, the content gets
    nothing. On a CPU it stays in fp32, as in encoders/layers/attention.py.
    """
    if split.device.type == "cpu" and split.dtype != torch.float32:
        with torch.autocast("cpu", enabled=False):
            return attend_streams(asking.float(), split.float(), streams)
    *own, key, value = split.transpose(1, 3).unbind(2)  # each (rows, heads, length, head width)
    attend = functional.scaled_dot_product_attention
    asked_for = asking[:, :, 0].transpose(1, 2)
    queries = attend(asked_for, key, value, attn_mask=streams.seen_by_queries)
    queries = queries.transpose(1, 2).flatten(2)
    if not own:
        return queries, None
    content = attend(own[0], key, value, attn_mask=streams.seen_by_content)
    return queries, content.transpose(1, 2).flatten(2)
