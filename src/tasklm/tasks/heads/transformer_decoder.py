"""A Transformer decoder (arXiv 1706.03762): layers that look at the text so far and at the source.

Norms come before the parts that they feed and after the last layer, so that it learns without a
long warm-up. Positions are sines, which have no longest text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.heads.decoders import DecoderHead, DecoderSteps, Table, draw
from tasklm.tasks.writing import Search

EPSILON = 1e-5
HEAD_WIDTH = 32  # of an attention head; twice that in wide decoders
WIDE = 512
# what the queries of a layer find among keys and values of the text (rows, heads, beam, head width)
Look = Callable[[int, Tensor, Tensor, Tensor], Tensor]
ROOM = 16  # steps that there is room for at first; then twice as many, and so on
SPREAD = 0.55  # of first weights, times 1/√width: as in the encoders
INNER = 4  # times the width, between the two maps of a layer


def heads_for(width: int) -> int:
    """The attention heads of a decoder: the most of at least the usual width that divide it."""
    most = max(1, width // (HEAD_WIDTH if width < WIDE else 2 * HEAD_WIDTH))
    return next(count for count in range(most, 0, -1) if width % count == 0)


def sines(positions: Tensor, width: int) -> Tensor:
    """The vectors (…, width) of positions: sines and cosines of falling frequencies."""
    half = (width + 1) // 2
    numbers = torch.arange(half, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() * torch.exp(numbers * (-math.log(10_000.0) / half))
    return torch.cat((angles.sin(), angles.cos()), -1)[..., :width]


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(rows, heads, length, head width) of (rows, length, width)."""
    rows, length, width = states.shape
    return states.view(rows, length, heads, width // heads).transpose(1, 2)


def merge_heads(states: Tensor) -> Tensor:
    """(rows, length, width) of (rows, heads, length, head width)."""
    return states.transpose(1, 2).flatten(2)


class DecoderLayer(nn.Module):
    """Attention to the text so far, attention to the source, and two maps."""

    def __init__(self, width: int, heads: int, dropout: float, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.own_norm = nn.LayerNorm(width, EPSILON)
        self.own = nn.Linear(width, 3 * width)
        self.own_out = nn.Linear(width, width)
        self.source_norm = nn.LayerNorm(width, EPSILON)
        self.asking = nn.Linear(width, width)
        self.source = nn.Linear(width, 2 * width)
        self.source_out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, EPSILON)
        self.up = nn.Linear(width, INNER * width)
        self.down = nn.Linear(INNER * width, width)
        self.dropout = nn.Dropout(dropout)
        for part in (self.own, self.asking, self.source, self.up):
            draw(part, SPREAD * width**-0.5)
        for part in (self.own_out, self.source_out, self.down):
            draw(part, SPREAD * (width * 3 * layers) ** -0.5)

    def own_parts(self, states: Tensor) -> list[Tensor]:
        """Queries, keys and values of the text (rows, heads, length, head width)."""
        parts = self.own(self.own_norm(states)).chunk(3, -1)
        return [split_heads(part, self.heads) for part in parts]

    def source_parts(self, memory: Tensor) -> list[Tensor]:
        """Keys and values of the source (rows, heads, source, head width)."""
        return [split_heads(part, self.heads) for part in self.source(memory).chunk(2, -1)]

    def before_source(self, states: Tensor) -> Tensor:
        """The states of whole texts after each token has looked at those before it."""
        queries, keys, values = self.own_parts(states)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.after_own(states, mixed)

    def after_own(self, states: Tensor, mixed: Tensor) -> Tensor:
        """The states with what the text so far adds."""
        added: Tensor = self.dropout(self.own_out(merge_heads(mixed)))
        return states + added

    def after_source(self, states: Tensor, parts: list[Tensor], seen: Tensor) -> Tensor:
        """The states (rows, length, width) with what the source adds, and then the two maps.

        `seen` (rows, 1, 1, source) are the tokens of the source.
        """
        asking = split_heads(self.asking(self.source_norm(states)), self.heads)
        keys, values = parts
        mixed = functional.scaled_dot_product_attention(asking, keys, values, attn_mask=seen)
        states = states + self.dropout(self.source_out(merge_heads(mixed)))
        inner = self.dropout(functional.gelu(self.up(self.norm(states))))
        added: Tensor = self.dropout(self.down(inner))
        return states + added


class TransformerDecoder(DecoderHead):
    """Layers over the embeddings of the tokens before."""

    def __init__(self, width: int, layers: int, dropout: float, search: Search) -> None:
        super().__init__()
        self.width, self.search, self.heads = width, search, heads_for(width)
        self.first_norm = nn.LayerNorm(width, EPSILON)
        self.layers = nn.ModuleList(
            DecoderLayer(width, self.heads, dropout, layers) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, EPSILON)
        self.dropout = nn.Dropout(dropout)

    def embed(self, table: Table, tokens: Tensor, positions: Tensor) -> Tensor:
        """The states (rows, length, width) that the first layer reads."""
        normed = self.first_norm(table.embed(tokens))
        placed: Tensor = self.dropout(normed + sines(positions, self.width).to(normed.dtype))
        return placed

    def embed_all(self, table: Table, given: Tensor) -> Tensor:
        """The states that the first layer reads of whole texts."""
        return self.embed(table, given, torch.arange(given.shape[1], device=given.device))

    def states(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """The states that predict what follows each token, none of which sees a later one."""
        states = self.embed_all(table, given)
        for layer in self.stack:
            states = layer.before_source(states)
            states = layer.after_source(states, layer.source_parts(memory), seen[:, None, None])
        normed: Tensor = self.norm(states)
        return normed

    def before_source(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """What the first layer knows of the text itself."""
        states: Tensor = self.stack[0].before_source(self.embed_all(table, given))
        return states

    def begin(self, table: Table, memory: Tensor, seen: Tensor, beam: int) -> TransformerSteps:
        """A decoder that has written nothing yet."""
        sources = [layer.source_parts(memory) for layer in self.stack]
        return TransformerSteps(self, table, sources, seen[:, None, None], beam)

    def step(
        self,
        table: Table,
        tokens: Tensor,
        position: Tensor,
        memory: tuple[list[list[Tensor]], Tensor],
        look: Look,
    ) -> Tensor:
        """The states (rows, beam, width) after the last tokens (rows, beam).

        `memory`: keys and values of the sources by layer, and which of them are tokens; `look`
        finds what each hypothesis sees of its own text.
        """
        sources, seen = memory
        states = self.embed(table, tokens, position)
        for number, layer in enumerate(self.stack):
            states = layer.after_own(states, look(number, *layer.own_parts(states)))
            states = layer.after_source(states, sources[number], seen)
        normed: Tensor = self.norm(states)
        return normed

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Keys and values of all layers."""
        return len(self.layers), self.heads, self.width // self.heads

    def memory_of(self, memory: Tensor) -> Tensor:
        """Keys and values of the source, by layer."""
        return torch.stack([torch.stack(layer.source_parts(memory)) for layer in self.stack])

    def step_of(
        self, table: Table, tokens: Tensor, seen: Tensor, memory: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same as `step`; every hypothesis has keys and values of its own, which grow by a
        token.
        """
        after = []

        def look(number: int, queries: Tensor, *new: Tensor) -> Tensor:
            grown = torch.cat((state[number], torch.stack(new).transpose(2, 3)[..., None, :]), 4)
            after.append(grown)
            keys, values = grown.flatten(1, 2)
            asking = queries.transpose(1, 2).flatten(0, 1)[:, :, None]
            mixed = functional.scaled_dot_product_attention(asking, keys, values)
            return mixed.reshape(*tokens.shape, self.heads, -1).transpose(1, 2)

        sources = [[layer[0], layer[1]] for layer in memory]
        position = torch.full((1,), state.shape[5], dtype=torch.int64)
        states = self.step(table, tokens, position, (sources, seen[:, None, None]), look)
        return states, torch.stack(after)

    def flops_of(self, rows: int, source: int, written: int, vocabulary: int) -> float:
        """The FLOPs of a forward pass: of maps, of both attentions, and of the logits."""
        width, layers = self.width, len(self.layers)
        maps = written * (6 + 2 * INNER) * width**2 + source * 2 * width**2
        attention = 2 * written * (written + source) * width
        logits = written * vocabulary * width
        return 2.0 * rows * (layers * (maps + attention) + logits)

    @property
    def stack(self) -> Any:
        """The layers."""
        return self.layers


class TransformerSteps(DecoderSteps):
    """Keys and values of all tokens that any hypothesis of an example has written, in the order of
    writing, and which are of others than each hypothesis descends from: nothing is copied when
    hypotheses change places.

    All hypotheses of an example ask the same source, as if they were so many tokens of one text.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        table: Table,
        sources: list[list[Tensor]],
        seen: Tensor,
        beam: int,
    ) -> None:
        self.decoder, self.table, self.sources, self.seen = decoder, table, sources, seen
        self.beam, self.done = beam, 0
        self.written: list[list[Tensor]] = [[] for _ in sources]  # (rows, heads, room, head width)
        self.new_others = ~torch.eye(beam, dtype=torch.bool, device=seen.device)
        self.others = self.new_others.new_zeros(len(seen), beam, 0)  # (rows, beam, tokens)

    def states(self, tokens: Tensor) -> Tensor:
        """The states (rows, beam, width) after the last tokens (rows, beam)."""
        position = torch.full((1,), self.done, device=tokens.device)
        memory = self.sources, self.seen
        self.others = torch.cat((self.others, self.new_others.expand(len(tokens), -1, -1)), 2)
        states = self.decoder.step(self.table, tokens, position, memory, self._look)
        self.done += 1
        return states

    def _look(self, number: int, queries: Tensor, *new: Tensor) -> Tensor:
        """What hypotheses see of their texts; the layer keeps the keys and values of these."""
        first, stop = self.done * self.beam, (self.done + 1) * self.beam
        parts = self.written[number]
        if not parts or stop > parts[0].shape[2]:
            room = max(ROOM * self.beam, 2 * first)
            grown = [one.new_empty(*one.shape[:2], room, one.shape[3]) for one in new]
            for place, part in zip(grown, parts, strict=False):
                place[:, :, :first] = part
            self.written[number] = parts = grown
        for part, one in zip(parts, new, strict=True):
            part[:, :, first:stop] = one
        keys, values = (part[:, :, :stop] for part in parts)
        scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(2, 3)
        shares = scores.masked_fill_(self.others[:, None], -torch.inf).softmax(-1)
        mixed: Tensor = shares.to(values.dtype) @ values
        return mixed

    def reorder(self, parents: Tensor) -> None:
        """Continues with the hypotheses that had the numbers (rows, beam)."""
        self.others = self.others.gather(1, parents[..., None].expand_as(self.others))

    def keep(self, rows: Tensor) -> None:
        """Continues with some of the texts: (rows,) bool."""
        self.written = [[part[rows] for part in layer] for layer in self.written]
        self.sources = [[part[rows] for part in layer] for layer in self.sources]
        self.seen, self.others = self.seen[rows], self.others[rows]
