"""Small encoders with weights that are nowhere neutral, and batches for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.tokens.batches import TokenBatch

SHAPE = Shape(vocabulary=64, layers=3, width=32, heads=4, feedforward=48, positions=32)
NARROW = Shape(
    vocabulary=64, layers=3, width=32, heads=4, feedforward=48, positions=32, embedding=8
)
KINDS = {
    "bert": ("bert", SHAPE),
    "electra": ("bert", NARROW),
    "modern": ("modern", SHAPE),
    "albert": ("albert", NARROW),
}
KINDS |= {"albert, one width": ("albert", SHAPE), "modern, narrow": ("modern", NARROW)}
KINDS |= {
    "roberta": ("roberta", SHAPE),
    "roberta, narrow": ("roberta", NARROW),
    "modernbert": ("modernbert", SHAPE),
}


def stir(module: nn.Module, spread: float = 0.2) -> None:
    """Draws every weight afresh, biases and norms too, so that nothing is compared at its neutral
    value.
    """
    for name, parameter in module.named_parameters():
        nn.init.normal_(
            parameter,
            mean=1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0,
            std=spread,
        )


def stirred(kind: str, seed: int = 0, layers: int = 3) -> Any:
    """An encoder of KINDS, ready to be compared."""
    torch.manual_seed(seed)
    name, shape = KINDS[kind]
    encoder = ENCODERS.get(name)(replace(shape, layers=layers)).eval()
    stir(encoder)
    return encoder


def rows_of(texts: list[Tensor]) -> TokenBatch:
    """Returns texts as rows, padded to the longest."""
    length = max(map(len, texts))
    ids, pieces, positions = (torch.zeros(len(texts), length, dtype=torch.long) for _ in range(3))
    for row, text in enumerate(texts):
        ids[row, : len(text)], pieces[row, : len(text)] = text, 1
        positions[row, : len(text)] = torch.arange(len(text))
    return TokenBatch(ids, pieces, positions)


def packed(texts: list[Tensor], padding: int) -> TokenBatch:
    """Returns texts one after another in one row with padding at its end, and the bounds of all
    these pieces.
    """
    ids = torch.cat([*texts, torch.zeros(padding, dtype=torch.long)])
    lengths = torch.tensor([*map(len, texts), padding])
    pieces = torch.repeat_interleave(torch.tensor([*range(1, len(texts) + 1), 0]), lengths)
    positions = torch.cat([torch.arange(int(length)) for length in lengths])
    bounds = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).int()
    return TokenBatch(
        ids[None], pieces[None], positions[None], bounds=bounds[None], longest=int(lengths.max())
    )


def texts(*lengths: int) -> list[Tensor]:
    """Returns random texts."""
    return [torch.randint(5, SHAPE.vocabulary, (length,)) for length in lengths]
