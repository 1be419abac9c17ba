"""The initial weights of stage 1: random, except for what counts of its text can provide."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tasklm.console.durations import duration
from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import initial_spread
from tasklm.encoders.shapes import SHALLOW
from tasklm.errors import RecipeError
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.train.init.counts import associations, embeddings, frequencies
from tasklm.train.init.neighbours import obstacle

# objectives that counts were measured to help: benchmarks/log.md
COUNTED = ("mlm", "electra", "electric", "replace-mlm")
RECURRENT = ("mlm", "bilm")  # … with a Bi-LSTM, which had published word vectors there


@dataclass(frozen=True)
class Beginning:
    """The parts of the initial weights that are not random."""

    counts: bool
    neighbours: bool


def wished(settings: Train, encoder: str, shape: Shape) -> Beginning:
    """How stage 1 should start, possible or not. By default, small models start with what was
    measured to help them.
    """
    small = encoder == "bert" and shape.layers <= SHALLOW and not settings.start
    counts = settings.embeddings == "counts"
    if settings.embeddings == "auto":
        counts = small and settings.objective in COUNTED
        if encoder == "bilstm" and not settings.start:
            counts = settings.objective in RECURRENT
    neighbours = settings.attention == "neighbours"
    if settings.attention == "auto":
        of_mlm = settings.objective == "mlm"
        neighbours = small and of_mlm and not obstacle(encoder, shape)
    return Beginning(counts, neighbours)


def beginning_of(settings: Train, encoder: str, shape: Shape) -> Beginning:
    """How stage 1 starts; raises RecipeError if the recipe asks for something impossible."""
    beginning, problems = wished(settings, encoder, shape), []
    with_start = "with train.start the weights come from the start; leave it out"
    if settings.start and beginning.counts:
        problems.append(f"train.embeddings = 'counts': {with_start}")
    if settings.start and beginning.neighbours:
        problems.append(f"train.attention = 'neighbours': {with_start}")
    if beginning.neighbours and (reason := obstacle(encoder, shape)):
        problems.append(f"train.attention = 'neighbours': {reason}; or set it to random")
    if problems:
        raise RecipeError(problems)
    return beginning


@dataclass(frozen=True)
class Counted:
    """The counts of the text of stage 1."""

    table: np.ndarray  # (types, width or fewer) float32: embeddings
    seen: np.ndarray  # (types,) bool: of which types there are any
    frequencies: np.ndarray  # (types,) float64
    tokens: int
    seconds: float

    def __str__(self) -> str:
        """A description for the log."""
        counted = f"{self.tokens:,} tokens of text ({duration(self.seconds)})"
        return f"embeddings start from co-occurrence counts in {counted}"


def count(
    train: EncodedExamples, external: Shards | None, specials: Sequence[int], shape: Shape
) -> Counted:
    """Embeddings and frequencies of the tokens of the task and of any selected text, or of a sample
    of it.
    """
    began = time.monotonic()
    rows = [unit.tokens for unit in train.units]
    tokens_of_task = np.fromiter(itertools.chain.from_iterable(rows), np.int64)
    texts = [Shards(tokens_of_task, np.cumsum([0, *map(len, rows)]))]
    if external is not None:
        texts.append(external)
    pairs = associations(texts, shape.vocabulary, specials)
    table = embeddings(pairs, shape.token_width)
    often = frequencies(texts, shape.vocabulary, specials)
    tokens = sum(len(text.tokens) for text in texts)
    return Counted(table, pairs.seen, often, tokens, time.monotonic() - began)


def put_counts(encoder: Any, objective: nn.Module, counted: Counted) -> None:
    """Writes embeddings at the scale of random ones, and log frequencies as biases of predictions.

    Types without any association keep their random rows.
    """
    rows, spread = counted.table[counted.seen], initial_spread(encoder.shape.token_width)
    if not rows.size:
        return
    rows = rows * (spread / max(float(np.sqrt(np.mean(rows**2))), 1e-12))
    shares = (counted.frequencies + 0.5) / (counted.frequencies + 0.5).sum()
    with torch.no_grad():
        weight = encoder.token.weight
        seen = torch.from_numpy(counted.seen).to(weight.device)
        weight[seen, : rows.shape[1]] = torch.from_numpy(rows).to(weight)
        for module in objective.modules():
            if isinstance(module, TokenPrediction):
                module.bias.copy_(torch.from_numpy(np.log(shares)))
