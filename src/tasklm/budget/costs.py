"""What an encoder costs: parameters, FLOPs in two conventions, and the memory of a training step.

All of it is arithmetic on the numbers of an encoder; docs/methods/costs.md explains what is
counted. Two conventions: `EncoderCost.training` is exact (backward = 2 × forward, look-ups free),
`electra_training` is the ELECTRA paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasklm.errors import RecipeError, TrainingError
from tasklm.recipe.schema import OPTIMISERS


@dataclass(frozen=True)
class Saved:
    """What one layer keeps of one token for the backward pass, counted in values."""

    width: float  # × width, in the type of the matrix products: 2 bytes in bf16, else 4
    full: float  # × width, always fp32
    inner: float  # × feedforward, in the type of the matrix products


# Values kept per token and layer, PyTorch without compilation; in brackets, how many times the
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
MIXED, MIXED_IN_FP32 = (
    5,
    8.0,
)  # the part of `Saved.width`, and of these bytes, that comes up to the mixed values
NORM_BYTES = 8  # per token and norm: mean and inverse deviation, fp32
# of the free memory that a step may plan to use; the rest is for fragments and what no formula
# counts
MEMORY_SHARE = 0.9

# Operations per value in the ELECTRA convention: an exp is one operation like an add (thesis
# section 5.2.2).
DROPOUT_OPERATIONS = 4  # draw, compare, multiply, rescale
NORM_OPERATIONS = 7  # add up, subtract the mean, square, add up, divide, scale, shift
GELU_OPERATIONS = (
    9  # tanh form: two for the cube, times, plus, times, tanh, plus one, times x, half
)
SOFTMAX_OPERATIONS = 5  # largest, subtract, exp, add up, divide
ROTARY_OPERATIONS = 3  # times cos, times sin, add


@dataclass(frozen=True)
class Architecture:
    """How a kind of encoder is built."""

    biases: bool  # linear layers and norms have a bias
    gated: bool  # the feed-forward layer is Wo(GELU(value) × gate), three matrices in place of two
    rotary: bool  # positions turn Q and K; else they are learned rows
    segments: int  # rows of the segment embedding
    shared: bool  # all layers use the same weights


ARCHITECTURES = {
    "bert": Architecture(biases=True, gated=False, rotary=False, segments=2, shared=False),
    "modern": Architecture(biases=False, gated=True, rotary=True, segments=0, shared=False),
    "albert": Architecture(biases=True, gated=False, rotary=False, segments=2, shared=True),
}
_TABLES: tuple[dict[str, Any], ...] = (ARCHITECTURES, EAGER, COMPILED, BF16_ON_A_CPU)
# published checkpoints are built like these; what modernbert's local layers do not see is computed
# too
for _table in _TABLES:
    _table |= {"roberta": _table["bert"], "modernbert": _table["modern"]}


@dataclass(frozen=True)
class EncoderCost:
    """Parameters and exact FLOPs of an encoder and of the heads on it; a multiply and an add are
    two FLOPs.
    """

    layers: int
    width: int
    feedforward: int  # inner width; of each half where it is gated
    vocabulary: int
    positions: int
    kind: str = "bert"
    # width of the embeddings; 0: the encoder's. Else a linear layer leads from it to the encoder's
    # width
    embedding: int = 0
    heads: int = 0  # 0: head width 64

    def __post_init__(self) -> None:
        if self.kind not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            problem = f"the cost of this encoder is unknown, only that of {known}"
            raise RecipeError(
                [f"model.encoder = {self.kind!r}: {problem}; add it to tasklm/budget/costs.py"]
            )

    @property
    def architecture(self) -> Architecture:
        """How this kind is built."""
        return ARCHITECTURES[self.kind]

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width

    @property
    def attention_heads(self) -> int:
        """The number of heads of a layer."""
        return self.heads or max(1, self.width // 64)

    @property
    def layer_matrices(self) -> int:
        """The weights in the matrices of one layer."""
        return (
            4 * self.width**2
            + (3 if self.architecture.gated else 2) * self.width * self.feedforward
        )

    @property
    def hidden_matrices(self) -> int:
        """The weights in the matrices of all layers, shared ones once."""
        return (1 if self.architecture.shared else self.layers) * self.layer_matrices

    @property
    def hidden_parameters(self) -> int:
        """The weights of the layers, embeddings left out."""
        if not self.architecture.biases:
            return (
                self.hidden_matrices + 2 * self.layers * self.width
            )  # a scale per norm: as many as in the layers, see `parameters`
        return self.hidden_matrices + (1 if self.architecture.shared else self.layers) * (
            9 * self.width + self.feedforward
        )

    @property
    def projection(self) -> int:
        """The weights in the matrix from the embeddings to the layers, 0 where there is none."""
        return 0 if self.embedding_width == self.width else self.embedding_width * self.width

    @property
    def parameters(self) -> int:
        """All weights of the encoder, heads left out.

        Pre-norm models have no norm before the first attention (the embeddings' norm stands there)
        but one after the last layer, so that 2 norms per layer and the embeddings' are right for
        them too.
        """
        how, wide = self.architecture, self.embedding_width
        rows = self.vocabulary + how.segments + (0 if how.rotary else self.positions)
        bias = self.width if how.biases and self.projection else 0
        return (
            self.hidden_parameters
            + (rows + (2 if how.biases else 1)) * wide
            + self.projection
            + bias
        )

    @property
    def prediction_parameters(self) -> int:
        """The weights of the head that predicts tokens: dense layer, norm and one bias per token;
        its matrix is the embedding.
        """
        return self.width * self.embedding_width + 3 * self.embedding_width + self.vocabulary

    def forward_per_token(self, length: int) -> float:
        """Returns FLOPs of one token through the layers, attention over
        `length` tokens included.
        """
        attention = 2 * 2 * length * self.width
        return float(self.layers * (2 * self.layer_matrices + attention) + 2 * self.projection)

    def unwanted_per_token(self) -> float:
        """Returns FLOPs of what follows the last layer's attention, which is done for the tokens
        alone that a head reads.
        """
        return float(2 * (self.layer_matrices - 3 * self.width**2))

    def forward_per_target(self) -> float:
        """Returns FLOPs of predicting one token: the head's dense layer and the logits."""
        return float(
            2 * self.width * self.embedding_width + 2 * self.embedding_width * self.vocabulary
        )

    def forward_per_judgement(self) -> float:
        """Returns FLOPs of judging one token (ELECTRA's discriminator): a dense layer and one
        logit.
        """
        return float(2 * self.width**2 + 2 * self.width)

    def training(
        self,
        tokens: int,
        targets: int,
        length: int,
        *,
        wanted: int | None = None,
        judged: int = 0,
        task_head: float = 0.0,
    ) -> float:
        """Returns exact training FLOPs: the backward pass costs two forward passes.

        `targets` tokens are predicted, `judged` tokens are judged, and a forward pass of the task's
        head takes `task_head`. `wanted` tokens are read by a head; None: all, as published costs
        have it.
        """
        unwanted = 0.0 if wanted is None else (tokens - wanted) * self.unwanted_per_token()
        heads = (
            targets * self.forward_per_target() + judged * self.forward_per_judgement() + task_head
        )
        return 3.0 * (tokens * self.forward_per_token(length) - unwanted + heads)

    def six_nd(self, tokens: int) -> float:
        """Returns 6 × parameters × tokens, the count that TLM reports."""
        return 6.0 * self.parameters * tokens


def electra_forward_per_token(cost: EncoderCost, length: int) -> float:
    """One token's FLOPs in the ELECTRA convention: look-ups as matrix products and element-wise
    operations count.
    """
    how, width, wide, inner = cost.architecture, cost.width, cost.embedding_width, cost.feedforward
    rows = cost.vocabulary + how.segments + (0 if how.rotary else cost.positions)
    tables = 1 + (1 if how.segments else 0) + (0 if how.rotary else 1)
    embedding = 2 * rows * wide + (tables - 1 + NORM_OPERATIONS + DROPOUT_OPERATIONS) * wide
    if cost.projection:
        embedding += 2 * cost.projection + (width if how.biases else 0)
    attention = (
        2 * 2 * length * width
        + (1 + SOFTMAX_OPERATIONS + DROPOUT_OPERATIONS) * length * cost.attention_heads
    )
    biases = 5 * width + inner if how.biases else 0
    residuals = 2 * (1 + NORM_OPERATIONS + DROPOUT_OPERATIONS) * width
    elementwise = biases + residuals + (GELU_OPERATIONS + (1 if how.gated else 0)) * inner
    if how.rotary:
        elementwise += 2 * ROTARY_OPERATIONS * width
    return float(embedding + cost.layers * (2 * cost.layer_matrices + attention + elementwise))


def electra_forward_per_target(cost: EncoderCost) -> float:
    """Returns FLOPs of predicting one token in the ELECTRA convention."""
    head = (1 + GELU_OPERATIONS + NORM_OPERATIONS) * cost.embedding_width + (
        1 + SOFTMAX_OPERATIONS
    ) * cost.vocabulary
    return cost.forward_per_target() + head


def electra_forward_per_judgement(cost: EncoderCost) -> float:
    """Returns FLOPs of judging one token in the ELECTRA convention: with biases, GELU and a sigmoid
    of three operations.
    """
    return cost.forward_per_judgement() + (1 + GELU_OPERATIONS) * cost.width + 1 + 3


def electra_training(
    cost: EncoderCost, tokens: float, targets: float, length: int, *, judged: float = 0
) -> float:
    """Returns training FLOPs in the ELECTRA convention: the backward pass costs as much as the
    forward pass.

    ELECTRA itself is the sum of its generator, which predicts `targets` tokens, and its
    discriminator, which judges `judged`.
    """
    heads = targets * electra_forward_per_target(cost) + judged * electra_forward_per_judgement(
        cost
    )
    return 2.0 * (tokens * electra_forward_per_token(cost, length) + heads)


@dataclass(frozen=True)
class MemoryCost:
    """Bytes of a training step at its peak."""

    weights: float
    gradients: float
    optimiser: float
    copies: float  # bf16 copies of the matrices, kept from the forward to the backward pass
    activations: float
    logits: float
    layer_gradients: (
        float  # gradients inside one layer, less what is gone by then beside the logits
    )

    @property
    def total(self) -> float:
        """The peak: at the logits, or in the backward pass of the last layer that computes all
        tokens.
        """
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
    bf16: bool = True,
    compiled: bool = True,
    dropout: bool = False,
    masked: bool = False,
    cpu: bool = False,
) -> MemoryCost:
    """The memory of a training step of `micro_batch_tokens` tokens in rows of `length`, `targets`
    of which are predicted.

    `wanted` tokens are read by a head; None: all. `masked`: attention gets a mask, which each layer
    keeps as numbers. `cpu`: without compilation, attention stays in fp32 there. A task's head,
    which is small, is left out.
    """
    if optimiser not in OPTIMISERS:
        raise TrainingError(
            f"the memory of the optimiser {optimiser!r} is "
            f"not known. Choose from {', '.join(OPTIMISERS)}."
        )
    value = 2 if bf16 else 4
    weights = cost.parameters + cost.prediction_parameters
    matrices = cost.hidden_matrices + cost.projection
    if targets:
        matrices += cost.width * cost.embedding_width + cost.vocabulary * cost.embedding_width
    state = 8 * weights - (4 * cost.hidden_matrices if optimiser == "muon" else 0)
    before, after = _layer_bytes(
        cost, length, value, compiled=compiled, dropout=dropout, masked=masked, cpu=cpu
    )
    layers = micro_batch_tokens * cost.layers * (before + after)
    peak: float = micro_batch_tokens * (
        2 * value * cost.feedforward * (2 if cost.architecture.gated else 1) + 8 * cost.width
    )
    if wanted is not None:
        repeated = (
            0 if cpu and bf16 else value * cost.width
        )  # the mixed values: those of all tokens, and a copy of the picked ones'
        picked = wanted * (after + repeated)
        layers += picked - micro_batch_tokens * after
        attention = (
            micro_batch_tokens * (6 * (4 if cpu else value) + 8) * cost.width
        )  # gradients of Q, K, V, apart and as one
        peak = (
            max(peak - micro_batch_tokens * before, attention) - picked
        )  # in the layer below, when the last is done, or in the last
    head = (
        3 * value + 4
    ) * cost.width + NORM_BYTES  # inputs of dense, GELU and norm, and of the logits
    activations = (
        layers + micro_batch_tokens * _embedding_bytes(cost, value, dropout, cpu) + targets * head
    )
    return MemoryCost(
        weights=4.0 * weights,
        gradients=4.0 * weights,
        optimiser=float(state),
        copies=2.0 * matrices if bf16 else 0.0,
        activations=float(activations),
        logits=targets * cost.vocabulary * (COMPILED_LOGIT if compiled else EAGER_LOGIT),
        layer_gradients=float(peak),
    )


def _layer_bytes(
    cost: EncoderCost,
    length: int,
    value: int,
    *,
    compiled: bool,
    dropout: bool,
    masked: bool,
    cpu: bool,
) -> tuple[float, float]:
    """What one layer keeps of one token, up to its mixed values and after them."""
    saved = (COMPILED if compiled else EAGER)[cost.kind]
    before = float(
        value * MIXED * cost.width + 4 * cost.attention_heads
    )  # and the logarithm of each softmax's sum
    after = (
        (value * (saved.width - MIXED) + 4 * saved.full) * cost.width
        + value * saved.inner * cost.feedforward
        + 2 * NORM_BYTES
    )
    if cpu and value == 2:
        before += MIXED_IN_FP32 * cost.width
        after += (BF16_ON_A_CPU[cost.kind] - MIXED_IN_FP32) * cost.width
    if dropout:  # a byte per value on a GPU; a CPU keeps the factors themselves
        after += 2 * (value if cpu else 1) * cost.width
    if masked:
        before += (4 if cpu else value) * length
    return before, after


def _embedding_bytes(cost: EncoderCost, value: int, dropout: bool, cpu: bool) -> float:
    """What the embeddings keep of one token: their sum before the norm, its numbers, the
    projection's input, and rotations.
    """
    wide, rotary = cost.embedding_width, cost.architecture.rotary
    kept = 4 * wide + NORM_BYTES + 8 * (1 if rotary else 3)
    if rotary:  # cosines and sines, of half a head each
        kept += 4 * cost.width // cost.attention_heads
    if cost.projection:
        kept += value * wide
    elif (
        cpu and value == 2 and not rotary
    ):  # the first sum of bert's layers is in fp32 there, as the embeddings are
        kept += 2 * wide
    return kept + (wide * (4 if cpu else 1) if dropout else 0)


def micro_batch_for(rows: int, bytes_of: Callable[[int], float], free_bytes: float) -> int:
    """Returns into how many micro-batches `rows` rows must be split to fit; `bytes_of(rows)`
    predicts the peak, rising with the rows.
    """
    allowed = MEMORY_SHARE * free_bytes
    if bytes_of(1) > allowed:
        raise TrainingError(
            f"one row needs {bytes_of(1) / 1e9:.2f} GB of "
            f"memory, and {allowed / 1e9:.2f} GB may be used. "
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
    """One line for people: weights, FLOPs and, where given, memory."""
    words = [
        f"{cost.kind}, {cost.layers} × {cost.width}",
        f"{cost.parameters / 1e6:.1f}M weights ({cost.hidden_parameters / 1e6:.1f}M in the layers)",
        (
            f"{3 * cost.forward_per_token(length) / 1e9:.3g} "
            f"GFLOP to train on a token at length {length}"
        ),
        f"{3 * cost.forward_per_target() / 1e9:.3g} more to predict it",
    ]
    if memory is not None:
        words.append(f"{memory.total / 1e9:.2f} GB at the peak of a step")
    return ", ".join(words)
