"""The decoder of *Semi-Supervised Sequence Modeling with Cross-View Training* (arXiv 1809.08370).

An LSTM reads the tokens so far; bilinear attention (Luong et al., arXiv 1508.04025) to the source
gives a context c; a = tanh(W [c; h]) predicts the next token. The LSTM begins from the mean of the
source's states.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.tasks.heads.decoders import DecoderHead, DecoderSteps, Table, context_of, draw
from tasklm.tasks.writing import Search

GATES = 4
State = tuple[Tensor, Tensor]  # hidden states and cells (layers, rows, width)


class LstmDecoder(DecoderHead):
    """LSTM layers, attention to the source, and a map of both."""

    def __init__(self, width: int, layers: int, dropout: float, search: Search) -> None:
        super().__init__()
        self.width, self.search, self.count = width, search, layers
        self.norm = nn.LayerNorm(width)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=between)
        self.first = nn.Linear(width, 2 * layers * width)
        self.attention = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        for part in (self.first, self.attention, self.out):
            draw(part, part.in_features**-0.5)

    def begun(self, memory: Tensor, seen: Tensor) -> State:
        """The state of the LSTM before the first token."""
        shares = seen.to(memory.dtype) / seen.sum(1, keepdim=True)
        mean = (shares[:, None] @ memory)[:, 0]
        both = torch.tanh(self.first(mean)).view(-1, 2, self.count, self.width)
        hidden, cells = both.permute(1, 2, 0, 3).contiguous()
        return hidden, cells

    def attended(self, states: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        """What predicts the next tokens, from the states (rows, length, width) of the LSTM."""
        context = context_of(self.attention(states), memory, seen)
        together: Tensor = torch.tanh(self.out(torch.cat((context, states), -1)))
        return together

    def read(self, table: Table, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The states (rows, length, width) of the LSTM after each token, and the last one."""
        given = self.dropout(self.norm(table.embed(tokens)))
        hidden, cells = (part.to(given.dtype) for part in state)
        states, last = self.lstm(given, (hidden, cells))
        return states, last

    def states(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """The states that predict what follows each token."""
        states = self.before_source(table, memory, seen, given)
        together: Tensor = self.dropout(self.attended(states, memory, seen))
        return together

    def before_source(self, table: Table, memory: Tensor, seen: Tensor, given: Tensor) -> Tensor:
        """The states of the LSTM, which begins from the mean of the source's."""
        states, _ = self.read(table, given, self.begun(memory, seen))
        dropped: Tensor = self.dropout(states)
        return dropped

    def begin(self, table: Table, memory: Tensor, seen: Tensor, beam: int) -> LstmSteps:
        """A decoder that has written nothing yet."""
        hidden, cells = (part.repeat_interleave(beam, 1) for part in self.begun(memory, seen))
        return LstmSteps(self, table, memory, seen, (hidden, cells))

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Hidden states and cells of all layers."""
        return self.count, 1, self.width

    def memory_of(self, memory: Tensor) -> Tensor:
        """The states of the source."""
        return memory[None, None, :, None]

    def step_of(
        self, table: Table, tokens: Tensor, seen: Tensor, memory: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The last of the tokens' states is enough; before the first, that from the source."""
        source = memory[0, 0, :, 0]
        first = torch.stack(self.begun(source, seen), 1)[:, :, :, None, None, None]
        first = first.expand(*first.shape[:3], tokens.shape[1], *first.shape[4:])
        last = torch.cat((first, state), 5)[:, :, :, :, 0, -1]
        states, after = self.norm(table.embed(tokens)), []
        for layer in range(self.count):
            states, cells = self._cell(layer, states, last[layer, 0], last[layer, 1])
            after.append(torch.stack((states, cells)))
        return self.attended(states, source, seen), torch.stack(after)[:, :, :, :, None, None]

    def _cell(self, layer: int, given: Tensor, hidden: Tensor, cells: Tensor) -> State:
        """A step of one layer, as PyTorch's LSTM computes it."""
        read, again = (
            functional.linear(
                states,
                getattr(self.lstm, f"weight_{name}_l{layer}"),
                getattr(self.lstm, f"bias_{name}_l{layer}"),
            )
            for name, states in (("ih", given), ("hh", hidden))
        )
        enter, forget, new, leave = (read + again).chunk(GATES, -1)
        cells = forget.sigmoid() * cells + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cells.tanh(), cells

    def flops_of(self, rows: int, source: int, written: int, vocabulary: int) -> float:
        """The FLOPs of a forward pass: of gates, of attention, of maps, and of the logits."""
        width = self.width
        gates = self.count * 2 * GATES * width**2
        attention = width**2 + 2 * source * width + 2 * width**2
        return 2.0 * rows * written * (gates + attention + vocabulary * width)


class LstmSteps(DecoderSteps):
    """The state of the LSTM of each hypothesis (layers, rows · beam, width)."""

    def __init__(
        self, decoder: LstmDecoder, table: Table, memory: Tensor, seen: Tensor, state: State
    ) -> None:
        self.decoder, self.table, self.memory, self.seen = decoder, table, memory, seen
        self.state = state

    def states(self, tokens: Tensor) -> Tensor:
        """The states (rows, beam, width) after the last tokens (rows, beam)."""
        rows, beam = tokens.shape
        states, self.state = self.decoder.read(self.table, tokens.reshape(-1, 1), self.state)
        return self.decoder.attended(states.reshape(rows, beam, -1), self.memory, self.seen)

    def reorder(self, parents: Tensor) -> None:
        """Continues with the hypotheses that had the numbers (rows, beam)."""
        beam = parents.shape[1]
        firsts = torch.arange(len(parents), device=parents.device)[:, None] * beam
        places = (firsts + parents).flatten()
        self.state = self.state[0][:, places], self.state[1][:, places]

    def keep(self, rows: Tensor) -> None:
        """Continues with some of the texts: (rows,) bool."""
        hypotheses = rows.repeat_interleave(self.state[0].shape[1] // len(rows))
        self.state = self.state[0][:, hypotheses], self.state[1][:, hypotheses]
        self.memory, self.seen = self.memory[rows], self.seen[rows]
