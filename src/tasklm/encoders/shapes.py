"""One dial for the size.

Heads are 64 wide; a size has about as many weights in its layers whichever encoder it is.
"""

from __future__ import annotations

from tasklm.encoders.base import Shape
from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import Model
from tasklm.registry import nearest

SIZES = {  # name: layers, width
    "tiny": (2, 128),
    "mini": (3, 192),
    "small": (4, 256),
    "medium": (8, 512),
    "base": (12, 768),  # BERT-base, the size of the papers' small and medium scales
    "large": (24, 1024),  # BERT-large
}
ALIGNED = 64  # rows of a matrix: what the matrix units of GPUs take without a slower path
RECURRENT_LAYERS = 2  # of bilstm, at every size
SHALLOW = 4  # layers up to which the automatic choice is bert
ALBERT_EMBEDDING = 128  # the published width of its embeddings, at every size


def padded_vocabulary(types: int) -> int:
    """The rows of the token embedding: the subword types, filled up to a multiple of 64."""
    return -(-types // ALIGNED) * ALIGNED


def numbers_of(size: str) -> tuple[int, int]:
    """The layers and the width of a size; raises RecipeError for a name that is none."""
    if size not in SIZES:
        choices = ", ".join(SIZES) + nearest(size, list(SIZES))
        raise RecipeError([f"model.size = {size!r}: choose from auto, {choices}"])
    return SIZES[size]


def encoder_of(settings: Model, size: str) -> str:
    """The architecture: the recipe's, or by the number of layers.

    Layers of bert (norms after the sums) learn word frequencies alone for thousands of steps where
    there are many of them; modern's do not. A few layers with learned positions tell orders of
    words apart sooner than a few with rotary ones.
    """
    if settings.encoder != "auto":
        return settings.encoder
    layers = settings.layers or numbers_of(size)[0]
    return "bert" if layers <= SHALLOW else "modern"


def default_feedforward(encoder: str, width: int) -> int:
    """The inner width of a feed-forward layer: 4 × width as in BERT, 2/3 of that with a gate.

    A gated layer has three matrices where BERT's has two, so that both have about 8 × width²
    weights (arXiv 2002.05202).
    """
    if encoder == "bilstm":  # cells of the first layer, as in arXiv 1809.08370
        return 2 * width
    if encoder.startswith("modern"):
        return max(ALIGNED, round(8 * width / 3 / ALIGNED) * ALIGNED)
    return 4 * width


def layers_and_width(settings: Model, size: str) -> tuple[int, int]:
    """The size's numbers, with the recipe's own in their place; a Bi-LSTM always has two layers."""
    layers, width = numbers_of(size)
    if encoder_of(settings, size) == "bilstm":
        layers = RECURRENT_LAYERS
    return settings.layers or layers, settings.width or width


def shape_of(settings: Model, size: str, vocabulary: int, positions: int) -> Shape:
    """The encoder's shape: the size's numbers, with the recipe's own numbers in their place.

    `vocabulary` is the number of subword types; the shape's is filled up to a multiple of 64.
    """
    layers, width = layers_and_width(settings, size)
    encoder = encoder_of(settings, size)
    if encoder == "bilstm":
        _check_recurrent(settings, layers, default_heads(width))
    heads = settings.heads or default_heads(width)
    if width % heads:
        raise RecipeError([f"model.width = {width} is not a multiple of model.heads = {heads}"])
    usual = {"albert": min(ALBERT_EMBEDDING, width)}
    embedding = settings.embedding or usual.get(encoder, width)
    return Shape(
        vocabulary=padded_vocabulary(vocabulary),
        layers=layers,
        width=width,
        heads=heads,
        feedforward=settings.feedforward or default_feedforward(encoder, width),
        positions=positions,
        embedding=0 if embedding == width else embedding,
    )


def default_heads(width: int) -> int:
    """The attention heads of an encoder, unless set."""
    return max(1, width // 64)


def _check_recurrent(settings: Model, layers: int, heads: int) -> None:
    """Refuses numbers that a Bi-LSTM cannot have.

    `heads` is the number that a shape has unless one is set, and that the recipe of a run which
    follows from another therefore names.
    """
    problems = []
    if layers != RECURRENT_LAYERS:
        problems.append(
            f"model.layers = {layers}: the encoder bilstm has {RECURRENT_LAYERS} layers; leave the "
            "key out, and set model.width or model.feedforward (the cells of its first layer)"
        )
    if settings.heads not in (None, heads):
        problems.append(
            f"model.heads = {settings.heads}: the encoder bilstm has no attention; leave the key "
            "out"
        )
    if problems:
        raise RecipeError(problems)
