"""The cost of an encoder: parameters, and FLOPs in two conventions.

Everything follows from the shape of an encoder; docs/methods/costs.md explains what is counted. Two
conventions: `EncoderCost.training` is exact (backward = 2 × forward, look-ups free),
`electra_training` is the ELECTRA paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasklm.errors import RecipeError

# Operations per value in the ELECTRA convention: an exp is one operation like an add (thesis
# section 5.2.2).
DROPOUT_OPERATIONS = 4  # draw, compare, multiply, rescale
NORM_OPERATIONS = 7  # add up, subtract the mean, square, add up, divide, scale, shift
GELU_OPERATIONS = 9  # tanh: two for the cube, times, plus, times, tanh, plus one, times x, half
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
# published checkpoints are built like these; modernbert's local layers are counted in full
ARCHITECTURES |= {"roberta": ARCHITECTURES["bert"], "modernbert": ARCHITECTURES["modern"]}


def learns_positions(encoder: str) -> bool:
    """Whether an encoder has a table of positions, which limits the length of rows; recurrent ones
    (budget/recurrent.py), and those of user code, have none.
    """
    built = ARCHITECTURES.get(encoder)
    return built is not None and not built.rotary


@dataclass(frozen=True)
class EncoderCost:
    """Parameters and exact FLOPs of an encoder and its heads; a multiply and an add are two."""

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
            problem = f"the cost of this encoder is unknown; known are {known}"
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
        in_feedforward = 3 if self.architecture.gated else 2
        return 4 * self.width**2 + in_feedforward * self.width * self.feedforward

    @property
    def distinct_layers(self) -> int:
        """The number of layers with their own weights."""
        return 1 if self.architecture.shared else self.layers

    @property
    def hidden_matrices(self) -> int:
        """The weights in the matrices of all layers, shared ones once."""
        return self.distinct_layers * self.layer_matrices

    @property
    def hidden_parameters(self) -> int:
        """The weights of the layers, embeddings left out."""
        if not self.architecture.biases:
            # a scale per norm: as many as in the layers, see `parameters`
            return self.hidden_matrices + 2 * self.layers * self.width
        return self.hidden_matrices + self.distinct_layers * (9 * self.width + self.feedforward)

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
        built = self.architecture
        rows = self.embedding_rows + (2 if built.biases else 1)
        bias = self.width if built.biases and self.projection else 0
        return self.hidden_parameters + rows * self.embedding_width + self.projection + bias

    @property
    def embedding_rows(self) -> int:
        """The rows of all embeddings: of tokens, of segments, and of positions that are learnt."""
        rows = self.vocabulary + self.architecture.segments
        return rows if self.architecture.rotary else rows + self.positions

    @property
    def prediction_parameters(self) -> int:
        """The weights of the head that predicts tokens; its matrix is the embedding."""
        return self.width * self.embedding_width + 3 * self.embedding_width + self.vocabulary

    def forward_per_token(self, length: int) -> float:
        """The FLOPs of one token through the layers, with attention over `length` tokens."""
        attention = 2 * 2 * length * self.width
        return float(self.layers * (2 * self.layer_matrices + attention) + 2 * self.projection)

    def views(self, tokens: int, length: int, layers: int, wanted: int, *, beside: bool) -> float:
        """The FLOPs of both restricted views of `wanted` tokens each, `beside` a pass of the whole
        text or alone: the lowest layers in either direction, of embeddings that are mapped once.
        """
        each = tokens * replace(self, layers=layers).forward_per_token(length)
        each -= (tokens - wanted) * self.unwanted_per_token()
        return 2 * each - tokens * 2 * self.projection

    def unwanted_per_token(self) -> float:
        """The FLOPs after the last layer's attention, spent only on tokens that a head reads."""
        return float(2 * (self.layer_matrices - 3 * self.width**2))

    def forward_per_target(self) -> float:
        """The FLOPs of predicting one token: the head's dense layer and the logits."""
        return float(2 * self.embedding_width * (self.width + self.vocabulary))

    def forward_per_judgement(self) -> float:
        """The FLOPs of judging one token (ELECTRA's discriminator): a dense layer and a logit."""
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
        """The exact training FLOPs: the backward pass costs two forward passes.

        `targets` tokens are predicted, `judged` tokens are judged, and a forward pass of the task's
        head takes `task_head`. `wanted` tokens are read by a head; None: all, as published costs
        have it.
        """
        unwanted = 0.0 if wanted is None else (tokens - wanted) * self.unwanted_per_token()
        token_heads = targets * self.forward_per_target() + judged * self.forward_per_judgement()
        layers = tokens * self.forward_per_token(length) - unwanted
        return 3.0 * (layers + (token_heads + task_head))

    def six_nd(self, tokens: int) -> float:
        """6 × parameters × tokens, the count that TLM reports."""
        return 6.0 * self.parameters * tokens


def electra_forward_per_token(cost: EncoderCost, length: int) -> float:
    """One token's FLOPs in the ELECTRA convention, with look-ups and element-wise operations."""
    built, width, inner = cost.architecture, cost.width, cost.feedforward
    added_tables = bool(built.segments) + (not built.rotary)
    per_value = added_tables + NORM_OPERATIONS + DROPOUT_OPERATIONS
    embedding = (2 * cost.embedding_rows + per_value) * cost.embedding_width
    if cost.projection:
        embedding += 2 * cost.projection + built.biases * width
    per_weight = 1 + SOFTMAX_OPERATIONS + DROPOUT_OPERATIONS
    attention = 2 * 2 * length * width + per_weight * length * cost.attention_heads
    residuals = 2 * (1 + NORM_OPERATIONS + DROPOUT_OPERATIONS) * width
    elementwise = residuals + (GELU_OPERATIONS + built.gated) * inner
    if built.biases:
        elementwise += 5 * width + inner
    if built.rotary:
        elementwise += 2 * ROTARY_OPERATIONS * width
    return float(embedding + cost.layers * (2 * cost.layer_matrices + attention + elementwise))


def electra_forward_per_target(cost: EncoderCost) -> float:
    """The FLOPs of predicting one token in the ELECTRA convention."""
    dense = (1 + GELU_OPERATIONS + NORM_OPERATIONS) * cost.embedding_width
    logits = (1 + SOFTMAX_OPERATIONS) * cost.vocabulary
    return cost.forward_per_target() + dense + logits


def electra_forward_per_judgement(cost: EncoderCost) -> float:
    """The FLOPs of judging one token in the ELECTRA convention; a sigmoid is three."""
    return cost.forward_per_judgement() + (1 + GELU_OPERATIONS) * cost.width + 1 + 3


def electra_training(
    cost: EncoderCost, tokens: float, targets: float, length: int, *, judged: float = 0
) -> float:
    """The training FLOPs in the ELECTRA convention: backward costs as much as forward.

    ELECTRA itself is the sum of its generator, which predicts `targets` tokens, and its
    discriminator, which judges `judged`.
    """
    predicted = targets * electra_forward_per_target(cost)
    judgements = judged * electra_forward_per_judgement(cost)
    return 2.0 * (tokens * electra_forward_per_token(cost, length) + predicted + judgements)
