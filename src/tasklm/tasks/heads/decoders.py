"""The heads of kinds that write: what every decoder has in common, and how models write with them.

A decoder has no embeddings of its own: it reads and predicts tokens with those of the encoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.errors import RecipeError
from tasklm.tasks.beam_search import Writing, beam_search
from tasklm.tasks.writing import Search, Writer


class Texts(Protocol):
    """The parts of a batch of sources that a decoder needs."""

    ids: Tensor  # (rows, length), which begin with [CLS]
    pieces: Tensor  # (rows, length): 0 where there is no token
    targets: Tensor | None  # (rows, tokens to write)


HIDDEN = -1e4  # the score of what is not a token of the source
GROUP = 32  # numbers of which the largest is looked at first


@dataclass(frozen=True)
class Table:
    """The embeddings of an encoder, to read tokens and to predict them."""

    weight: Tensor  # (vocabulary, token width)
    projection: Tensor | None  # (width, token width), where the layers are wider

    @classmethod
    def of(cls, encoder: Any, width: int) -> Table:
        """The table of an encoder; raises RecipeError where it does not fit the decoder."""
        weight, projection = encoder.token.weight, getattr(encoder, "projection", None)
        if isinstance(projection, nn.Linear):
            return cls(weight, projection.weight)
        if weight.shape[1] != width:
            problem = f"a decoder cannot share embeddings of width {weight.shape[1]} with this one"
            raise RecipeError([f"model.embedding: {problem}; leave the key out"])
        return cls(weight, None)

    def embed(self, ids: Tensor) -> Tensor:
        """The vectors (…, width) of some tokens."""
        vectors = functional.embedding(ids, self.weight)
        return vectors if self.projection is None else functional.linear(vectors, self.projection)

    def logits(self, states: Tensor) -> Tensor:
        """A number for each token of the vocabulary from states (…, width)."""
        if self.projection is not None:
            states = functional.linear(states, self.projection.t())
        return functional.linear(states, self.weight)


def draw(linear: nn.Linear, spread: float) -> None:
    """Draws the first weights of a map; its biases are 0."""
    nn.init.normal_(linear.weight, std=spread)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


class DecoderHead(nn.Module, ABC):
    """A decoder that reads the states of a source and writes a text, token by token."""

    width: int
    search: Search

    @abstractmethod
    def states(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """The states (rows, length, width) that predict what follows each of the tokens `given`
        (rows, length), of sources with states `memory`, of which `seen` (rows, source) are tokens.
        """
        ...

    @abstractmethod
    def before_source(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """The states (rows, length, width) after each of the tokens `given`, before any of them has
        looked at the tokens of its source.
        """
        ...

    @abstractmethod
    def begin(self, table: Table, memory: Tensor, seen: Tensor, beam: int) -> Any:
        """A decoder that has written nothing yet: a `DecoderSteps`."""
        ...

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, int, int]:
        """Layers, heads and width of a head: of what is kept of each token, as one tensor (layers,
        2, rows, beam, heads, tokens, width).
        """
        ...

    @abstractmethod
    def memory_of(self, memory: Tensor) -> Tensor:
        """What every step needs of the source's states, as one tensor (…, …, rows, heads, source,
        width).
        """
        ...

    @abstractmethod
    def step_of(
        self, table: Table, tokens: Tensor, seen: Tensor, memory: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The states (rows, beam, width) after the last tokens (rows, beam), from such a memory and
        state, and the state of the next step: for graphs, which have nothing but tensors.
        """
        ...

    @abstractmethod
    def flops_of(self, rows: int, source: int, written: int, vocabulary: int) -> float:
        """The FLOPs of a forward pass on texts of so many tokens."""
        ...


class DecoderSteps(ABC):
    """A decoder in the middle of some texts, with what it keeps of the tokens before."""

    @abstractmethod
    def states(self, tokens: Tensor) -> Tensor:
        """The states (rows, beam, width) after the last tokens (rows, beam)."""
        ...

    @abstractmethod
    def reorder(self, parents: Tensor) -> None:
        """Continues with the hypotheses that had the numbers (rows, beam)."""
        ...

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Continues with some of the texts: (rows,) bool."""
        ...


def source_of(encoder: Any, batch: Texts) -> tuple[Tensor, Tensor]:
    """The states (rows, length, width) of sources and which of them are tokens (rows, length).

    Rows of padding, which no target belongs to, keep one: a softmax over nothing is not a number.
    """
    seen = batch.pieces > 0
    first = torch.arange(seen.shape[1], device=seen.device) == 0
    return encoder(batch), seen | first


def taught_logits(encoder: Any, head: DecoderHead, batch: Texts) -> Tensor:
    """The logits (rows, length, vocabulary) of every token of the targets after the right ones
    before it.
    """
    assert batch.targets is not None
    table = Table.of(encoder, head.width)
    memory, seen = source_of(encoder, batch)
    given = given_tokens(batch.ids, batch.targets)
    return table.logits(head.states(table, memory, seen, given))


def given_tokens(ids: Tensor, targets: Tensor) -> Tensor:
    """The tokens (rows, length) that targets follow: the first of the source, and those before."""
    return torch.cat((ids[:, :1], targets[:, :-1].clamp(min=0)), 1)


def context_of(queries: Tensor, memory: Tensor, seen: Tensor, hidden: float = 0.0) -> Tensor:
    """What queries (rows, length, width) find in the states of sources: their mean by the softmax
    of products (arXiv 1508.04025); `hidden`: the share of it that is zeroed by chance.
    """
    scores = queries @ memory.transpose(1, 2)
    shares = scores.float().masked_fill(~seen[:, None], HIDDEN).softmax(-1)
    return functional.dropout(shares, hidden).to(memory.dtype) @ memory


class TorchArrays:
    """The operations of a search on PyTorch's tensors."""

    def __init__(self, device: torch.device) -> None:
        self.waits = device.type != "cpu"

    def full(self, shape: tuple[int, ...], value: Any, like: Tensor) -> Tensor:
        """A tensor of one value, on the device of another and with its type."""
        return like.new_full(shape, value)

    def numbers(self, like: Tensor) -> Tensor:
        """A tensor of 32-bit numbers as large as another."""
        return like.float()

    def top(self, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The largest values along the last axis, in order, and their places."""
        largest, places = values.topk(count, -1)
        return largest, places

    def take(self, values: Tensor, places: Tensor) -> Tensor:
        """The entries (rows, places, …) of values (rows, entries, …)."""
        places = places.reshape(*places.shape, *(1,) * (values.dim() - 2))
        return values.gather(1, places.expand(*places.shape[:2], *values.shape[2:]))

    def where(self, holds: Tensor, one: Any, other: Any) -> Tensor:
        """One where something holds, and the other elsewhere."""
        return torch.where(holds, one, other)

    def join(self, parts: list[Tensor]) -> Tensor:
        """Tensors side by side along the second axis."""
        return torch.cat(parts, 1)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest values along the last axis, in order, their places, and the largest of all.

    `topk` is slow where there are many: it looks only at the groups whose maxima are the largest.
    """
    types = values.shape[-1]
    groups = types // GROUP
    if groups <= count or types % GROUP:
        best, places = values.topk(min(count, types), -1)
        return best, places, best[..., :1]
    flat = values.reshape(-1, groups, GROUP)
    maxima, chosen = flat.amax(-1).topk(count, -1)
    firsts = torch.arange(len(flat), device=values.device)[:, None] * groups
    near = flat.flatten(0, 1)[(firsts + chosen).flatten()].view(len(flat), -1)
    best, places = near.topk(count, -1)
    numbers = chosen[..., None] * GROUP + torch.arange(GROUP, device=values.device)
    places = numbers.flatten(1).gather(-1, places)
    shape = *values.shape[:-1], count
    return best.view(shape), places.view(shape), maxima[:, :1].view(*values.shape[:-1], 1)


class Together:
    """One model, or several whose probabilities are averaged, that write the same texts."""

    def __init__(self, tables: list[Table], steps: list[DecoderSteps], never: Tensor) -> None:
        self.tables, self.steps, self.never = tables, steps, never

    def best(self, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The likeliest next tokens: their logarithmic probabilities and numbers."""
        logits = [
            table.logits(one.states(tokens)).float()
            for table, one in zip(self.tables, self.steps, strict=True)
        ]
        if len(logits) > 1:
            mean = torch.stack([one.log_softmax(-1) for one in logits]).logsumexp(0)
            logits = [mean]
        (one,) = logits
        unwritten = one.index_select(-1, self.never)  # probable as they may be
        values, words, most = largest(one.index_fill_(-1, self.never, -torch.inf), count)
        sums = one.sub_(most).exp_().sum(-1, keepdim=True)
        sums += (unwritten - most).exp_().sum(-1, keepdim=True)
        return values - most - sums.log_(), words

    def reorder(self, parents: Tensor) -> None:
        """Continues with other hypotheses."""
        for one in self.steps:
            one.reorder(parents)

    def keep(self, rows: Tensor) -> None:
        """Continues with some of the texts."""
        for one in self.steps:
            one.keep(rows)


def write(models: Sequence[Any], search: Search, vocabulary: Writer, batch: Texts) -> Tensor:
    """The candidates (rows, 1, beam, 2 + tokens) that models write together for some sources."""
    tables, steps, types = [], [], 0
    for model in models:
        table = Table.of(model.encoder, model.head.width)
        memory, seen = source_of(model.encoder, batch)
        tables.append(table)
        steps.append(model.head.begin(table, memory, seen, search.beam))
        types = len(table.weight)
    device = batch.ids.device
    others = [token for token in vocabulary.specials if token != vocabulary.sep]
    never = torch.tensor([*others, *range(len(vocabulary), types)], device=device)
    sizes = (batch.pieces > 0).sum(1).cpu().numpy() - 2
    limits = torch.from_numpy(search.limits(sizes)).to(device)
    writing: Writing = Together(tables, steps, never)
    first = batch.ids[:, 0]
    texts: Tensor = beam_search(writing, first, limits, search, vocabulary.sep, TorchArrays(device))
    return texts
