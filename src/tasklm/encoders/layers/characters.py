"""What a token is written with, as a vector: a convolution over its characters (arXiv 1508.06615).

Characters are the bytes of UTF-8, so that their table has one size for every language. A mark in
front tells whether the token begins a word or continues one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.initial_weights import initial_spread
from tasklm.tokens.tokenizer import Vocabulary

# numbers of Semi-Supervised Sequence Modeling with Cross-View Training (arXiv 1809.08370)
CHARACTER, FILTERS, WIDTHS, LONGEST = 50, 100, (2, 3, 4), 20
FEATURES = FILTERS * len(WIDTHS)  # of a token
PAD, BEGINS, CONTINUES, ENDS, FIRST_BYTE = range(5)
KINDS = FIRST_BYTE + 256


def spellings(vocabulary: Vocabulary, rows: int) -> Tensor:
    """The characters of each token (rows, LONGEST; int64); special tokens have none."""
    table = np.full((rows, LONGEST), PAD)
    prefix = getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or ""
    special = set(vocabulary.specials)
    for number in range(len(vocabulary)):
        text = vocabulary.tokenizer.id_to_token(number)
        if text is None or number in special:
            continue
        mark = BEGINS
        if prefix and text.startswith(prefix) and text != prefix:
            mark, text = CONTINUES, text.removeprefix(prefix)
        characters = [FIRST_BYTE + byte for byte in text.encode()[: LONGEST - 2]]
        table[number, : len(characters) + 2] = [mark, *characters, ENDS]
    return torch.from_numpy(table)


class Characters(nn.Module):
    """Token numbers in, FEATURES numbers out: the largest answer of each filter in a token."""

    spelling: Tensor

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(KINDS, CHARACTER)
        self.filters = nn.ModuleList(nn.Conv1d(CHARACTER, FILTERS, width) for width in WIDTHS)
        # follows from the vocabulary, so that it is no part of what is saved
        empty = torch.zeros(vocabulary, LONGEST, dtype=torch.long)
        self.register_buffer("spelling", empty, persistent=False)
        self.spelt = False
        nn.init.normal_(self.table.weight, std=initial_spread(CHARACTER))
        for width, conv in zip(WIDTHS, self.filters, strict=True):
            assert isinstance(conv, nn.Conv1d) and conv.bias is not None
            nn.init.normal_(conv.weight, std=initial_spread(width * CHARACTER))
            nn.init.zeros_(conv.bias)

    def spell(self, vocabulary: Vocabulary) -> None:
        """Learns the characters of all tokens, without which nothing can be read; a module that has
        shapes alone stays without them.
        """
        if self.spelling.is_meta:
            return
        table = spellings(vocabulary, len(self.spelling))
        self.spelling = table.to(self.spelling.device)
        self.spelt = True

    def forward(self, ids: Tensor) -> Tensor:
        """The features (rows, length, FEATURES) of tokens (rows, length).

        On a CPU every kind of token is computed once; elsewhere that would wait for the device.
        """
        assert self.spelt, "the encoder does not know its vocabulary: call spell"
        if ids.device.type != "cpu" or torch.compiler.is_compiling():
            return self._features(ids.flatten()).view(*ids.shape, FEATURES)
        kinds, which = torch.unique(ids, return_inverse=True)
        return self._features(kinds)[which]

    def _features(self, kinds: Tensor) -> Tensor:
        written = self.table(self.spelling[kinds]).transpose(1, 2)
        answers = [functional.relu(conv(written)).amax(2) for conv in self.filters]
        return torch.cat(answers, 1)


def character_weights() -> int:
    """The number of weights of `Characters`."""
    return KINDS * CHARACTER + sum(CHARACTER * width * FILTERS + FILTERS for width in WIDTHS)


def character_flops() -> int:
    """The FLOPs of a token's features."""
    windows = [(LONGEST - width + 1) * width for width in WIDTHS]
    return 2 * CHARACTER * FILTERS * sum(windows)
