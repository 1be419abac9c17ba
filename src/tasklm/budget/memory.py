"""The memory of a training step, and into how many micro-batches it must be split.

Everything follows from the shape of an encoder; docs/methods/costs.md explains what is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasklm.budget.costs import EncoderCost
from tasklm.budget.recurrent import RecurrentCost, recurrent_bytes
from tasklm.errors import TrainingError
from tasklm.recipe.model_sections import OPTIMISERS


@dataclass(frozen=True)
class Saved:
    """What one layer keeps of one token for the backward pass, counted in values."""

    width: float  # × width, in the type of the matrix products: 2 bytes in bf16, else 4
    full: float  # × width, always fp32
    inner: float  # × feedforward, in the type of the matrix products


# Values saved per token and layer, PyTorch without compilation; in brackets, how many times the
# width (w) or the inner width (i).
#   bert, albert                                  modern
#   input of Q, K, V                  (1w)        normed input of Q, K, V           (1w)
#   Q, K, V in one tensor             (3w)        Q and K after rotation, and V     (3w)
#   mixed values, input of out        (1w)        mixed values, input of out        (1w)
#   sum before the norm, fp32         (1w full)   sum before the next norm, fp32    (1w full)
#   input of up                       (1w)        normed input of Wi                (1w)
#   output of up, input of GELU       (1i)        output of Wi: value and gate      (2i)
#   input of down                     (1i)        GELU of the value                 (1i)
#                                                 value × gate, input of Wo         (1i)
#   sum before the norm, fp32         (1w full)   sum before the next norm, fp32    (1w full)
EAGER = {"bert": Saved(6, 2, 2), "albert": Saved(6, 2, 2), "modern": Saved(6, 2, 4)}
# Compiled: what PyTorch's partitioner keeps on a CPU where norms compute in fp32, as on a GPU. It
# keeps the inputs of all matrix products, the sums of bert before their cast to fp32 (modern's are
# a stream in fp32), and computes the GELU of the value again.
COMPILED = {"bert": Saved(8, 0, 2), "albert": Saved(8, 0, 2), "modern": Saved(6, 2, 3)}
# Bytes per logit at the peak. Without compilation: log-probabilities, their gradient, and the
# logits' gradient, all fp32. Compiled: the logits in bf16 alone; a test compares the total with the
# peaks in docs/benchmarks/training.json.
EAGER_LOGIT, COMPILED_LOGIT = 12.0, 2.0
# Bytes × width that a layer keeps beyond EAGER in bf16 on a CPU, where attention stays in fp32
# (encoders/layers/attention.py): Q, K, V in fp32 in place of bf16, 6, and the mixed values in fp32
# as well as in bf16, 4; less 4 in bert, whose norms there take sums in bf16.
BF16_ON_A_CPU = {"bert": 6.0, "albert": 6.0, "modern": 10.0}
# the part of `Saved.width`, and of these bytes, that comes up to the mixed values
MIXED, MIXED_IN_FP32 = 5, 8.0
NORM_BYTES = 8  # per token and norm: mean and inverse deviation, fp32
# of the free memory that a step may plan to use; the rest is for fragments and what no formula
# counts
MEMORY_SHARE = 0.9

_TABLES: tuple[dict[str, Any], ...] = (EAGER, COMPILED, BF16_ON_A_CPU)
for _table in _TABLES:  # published checkpoints are built like these
    _table |= {"roberta": _table["bert"], "modernbert": _table["modern"]}


@dataclass(frozen=True)
class Computing:
    """How a training step is computed."""

    bf16: bool = True
    compiled: bool = True
    dropout: bool = False
    masked: bool = False  # attention gets a mask, which each layer keeps as numbers
    cpu: bool = False  # without compilation, attention stays in fp32 there

    @property
    def bytes(self) -> int:
        """The bytes of a value in the type of the matrix products."""
        return 2 if self.bf16 else 4

    @property
    def attention_bytes(self) -> int:
        """The bytes of a value inside attention."""
        return 4 if self.cpu else self.bytes

    @property
    def bf16_on_a_cpu(self) -> bool:
        """Whether layers keep values in fp32 beside those in bf16."""
        return self.cpu and self.bf16

    @property
    def logit_bytes(self) -> float:
        """The bytes of a logit at the peak."""
        return COMPILED_LOGIT if self.compiled else EAGER_LOGIT

    def saved(self, kind: str) -> Saved:
        """What a layer of an encoder of that kind keeps of a token."""
        return COMPILED[kind] if self.compiled else EAGER[kind]


@dataclass(frozen=True)
class MemoryCost:
    """Bytes of a training step at its peak."""

    weights: float
    gradients: float
    optimiser: float
    copies: float  # bf16 copies of the matrices, saved from the forward to the backward pass
    activations: float
    logits: float
    # gradients inside one layer, less what is gone by then beside the logits
    layer_gradients: float

    @property
    def total(self) -> float:
        """The peak: at the logits, or in the backward pass of the last layer of all tokens."""
        lasting = self.weights + self.gradients + self.optimiser + self.copies + self.activations
        return lasting + max(self.logits, self.layer_gradients)


def training_bytes(
    cost: EncoderCost,
    micro_batch_tokens: int,
    targets: int,
    length: int,
    *,
    wanted: int | None = None,
    optimiser: str = "adamw",
    **computed: bool,
) -> MemoryCost:
    """The memory of a step of `micro_batch_tokens` tokens in rows of `length`, `targets` predicted.

    `wanted` tokens are read by a head; None: all. `computed` are the fields of `Computing`. A
    task's head, which is small, is left out.
    """
    if optimiser not in OPTIMISERS:
        raise TrainingError(
            f"the memory of the optimiser {optimiser!r} is unknown. "
            f"Choose from {', '.join(OPTIMISERS)}."
        )
    computing, tokens = Computing(**computed), micro_batch_tokens
    weights = cost.parameters + cost.prediction_parameters
    matrices = cost.hidden_matrices + cost.projection
    if targets:
        matrices += cost.width * cost.embedding_width + cost.vocabulary * cost.embedding_width
    state = 8 * weights
    if optimiser == "muon":
        state -= 4 * cost.hidden_matrices
    if optimiser == "sgd":
        state = 4 * weights
    if isinstance(cost, RecurrentCost):
        saved, peak = recurrent_bytes(cost, tokens, wanted, computing.bytes, computing.dropout)
    else:
        saved, peak = _layers_and_peak(cost, tokens, wanted, length, computing)
        saved += tokens * _embedding_bytes(cost, computing)
    # inputs of dense, GELU and norm, and of the logits
    head = (3 * computing.bytes + 4) * cost.width + NORM_BYTES
    activations = saved + targets * head
    return MemoryCost(
        weights=4.0 * weights,
        gradients=4.0 * weights,
        optimiser=float(state),
        copies=2.0 * matrices if computing.bf16 else 0.0,
        activations=float(activations),
        logits=targets * cost.vocabulary * computing.logit_bytes,
        layer_gradients=float(peak),
    )


def _layers_and_peak(
    cost: EncoderCost, tokens: int, wanted: int | None, length: int, computing: Computing
) -> tuple[float, float]:
    """What all layers keep of a step, and the peak of the gradients inside one of them."""
    before, after = _layer_bytes(cost, length, computing)
    layers = tokens * cost.layers * (before + after)
    inner = cost.feedforward * (2 if cost.architecture.gated else 1)
    peak: float = tokens * (2 * computing.bytes * inner + 8 * cost.width)
    if wanted is None:
        return layers, peak
    # the mixed values: those of all tokens, and a copy of the picked ones'
    repeated = 0 if computing.bf16_on_a_cpu else computing.bytes * cost.width
    picked = wanted * (after + repeated)
    layers += picked - tokens * after
    # gradients of Q, K, V, apart and as one
    attention = tokens * (6 * computing.attention_bytes + 8) * cost.width
    # in the layer below, when the last is done, or in the last
    return layers, max(peak - tokens * before, attention) - picked


def _layer_bytes(cost: EncoderCost, length: int, computing: Computing) -> tuple[float, float]:
    """What one layer keeps of one token, up to its mixed values and after them."""
    saved, value = computing.saved(cost.kind), computing.bytes
    # and the logarithm of each softmax's sum
    before = float(value * MIXED * cost.width + 4 * cost.attention_heads)
    after = (
        (value * (saved.width - MIXED) + 4 * saved.full) * cost.width
        + value * saved.inner * cost.feedforward
        + 2 * NORM_BYTES
    )
    if computing.bf16_on_a_cpu:
        before += MIXED_IN_FP32 * cost.width
        after += (BF16_ON_A_CPU[cost.kind] - MIXED_IN_FP32) * cost.width
    if computing.dropout:  # a byte per value on a GPU; a CPU keeps the factors themselves
        after += 2 * (value if computing.cpu else 1) * cost.width
    if computing.masked:
        before += computing.attention_bytes * length
    return before, after


def _embedding_bytes(cost: EncoderCost, computing: Computing) -> float:
    """What the embeddings keep of one token: sum, norm, the projection's input, and rotations."""
    wide, rotary = cost.embedding_width, cost.architecture.rotary
    size = 4 * wide + NORM_BYTES + 8 * (1 if rotary else 3)
    if rotary:  # cosines and sines, of half a head each
        size += 4 * cost.width // cost.attention_heads
    if cost.projection:
        size += computing.bytes * wide
    elif computing.bf16_on_a_cpu and not rotary:
        size += 2 * wide  # the first sum of bert's layers is in fp32 there, as the embeddings are
    if computing.dropout:
        size += wide * (4 if computing.cpu else 1)
    return size


def micro_batch_for(rows: int, bytes_of: Callable[[int], float], free_bytes: float) -> int:
    """Into how many micro-batches `rows` rows must be split to fit.

    `bytes_of(rows)` predicts the peak, rising with the rows.
    """
    allowed = MEMORY_SHARE * free_bytes
    if bytes_of(1) > allowed:
        raise TrainingError(
            f"one row needs {bytes_of(1) / 1e9:.2f} GB of memory, "
            f"but only {allowed / 1e9:.2f} GB may be used. "
            "Choose a smaller model (--model.size) or shorter rows (--tokens.length)."
        )
    fits, too_many = 1, rows + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if bytes_of(middle) <= allowed:
            fits = middle
        else:
            too_many = middle
    return -(-rows // fits)


def describe(cost: EncoderCost, length: int, memory: MemoryCost | None = None) -> str:
    """A readable line: weights, FLOPs and, if given, memory."""
    per_token = 3 * cost.forward_per_token(length) / 1e9
    words = [
        f"{cost.kind}, {cost.layers} × {cost.width}",
        f"{cost.parameters / 1e6:.1f}M weights ({cost.hidden_parameters / 1e6:.1f}M in the layers)",
        f"{per_token:.3g} GFLOP to train on a token at length {length}",
        f"{3 * cost.forward_per_target() / 1e9:.3g} more to predict it",
    ]
    if memory is not None:
        words.append(f"{memory.total / 1e9:.2f} GB at the peak of a step")
    return ", ".join(words)
