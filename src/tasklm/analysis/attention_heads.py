"""What the attention heads of a model attend to: neighbours, special tokens, or something else.

"NLP From Scratch Without Large-Scale Pretraining: A Simple and Efficient Framework" (TLM, arXiv
2111.04130), section 4.4.1 and figure 3: a head is *positional* when at least 90 % of its maximum
attention weights fall on an adjacent token (after Voita et al., arXiv 1905.09418), and *vertical*
when more than 90 % of them fall on [CLS], [SEP] or the period (after Kovaleva et al., arXiv
1908.08593). Every token of a text, including [CLS] and [SEP], has one maximum; the token before
and the token after are adjacent, the token itself is not. The paper's texts are English: the full
stops of other scripts count as periods too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.encoders.bert import BertLayer
from tasklm.encoders.modern import ModernLayer, rotate
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary

POSITIONAL, VERTICAL = 0.9, 0.9  # at least, and more than
PERIODS = frozenset(".。．।۔።")
MOST_TEXTS, TOGETHER = 100, 16  # maximum numbers of texts, and of rows per batch
MOST_WEIGHTS = 2**26  # of a layer's attention, held at a time: a quarter of a gigabyte
PICTURED = 16  # tokens of the text in the pictures
MOST_LAYERS, MOST_HEADS = 24, 16  # described individually; all are counted
KINDS = {  # of heads that are positional, and vertical
    (True, True): "both",
    (True, False): "positional",
    (False, True): "vertical",
    (False, False): "other",
}

Take = Callable[[int, Tensor], None]


def has_visible_heads(encoder: nn.Module) -> bool:
    """Whether the attention of the encoder's layers can be computed here."""
    return any(isinstance(module, BertLayer | ModernLayer) for module in encoder.modules())


@contextmanager
def watching(encoder: Any, take: Take) -> Iterator[None]:
    """Calls `take` with the number of each layer that runs and its attention probabilities.

    These are (rows, heads, queries, keys).

    The fused kernels of the layers return no weights: these are recomputed in fp32 from the inputs
    of a layer. All calls in the context must have whole batches without bounds and be outside
    autocast.
    """
    done = 0

    def look(layer: nn.Module, given: tuple[Any, ...]) -> None:
        nonlocal done
        assert isinstance(layer, BertLayer | ModernLayer)
        take(done % layers, _probabilities(layer, given))
        done += 1

    watched = [
        module for module in encoder.modules() if isinstance(module, BertLayer | ModernLayer)
    ]
    layers: int = encoder.shape.layers  # albert runs one module this many times
    handles = [layer.register_forward_pre_hook(look) for layer in watched]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _probabilities(layer: BertLayer | ModernLayer, given: tuple[Any, ...]) -> Tensor:
    """The softmax(QKᵀ/√d) of a layer, from the arguments of its forward pass."""
    hidden, layout = given[0], given[1]
    assert layout.pieces is None and layout.bounds is None  # of kernels that run only in 16 bits
    if isinstance(layer, ModernLayer):
        split: Tensor = layer.query_key_value(layer.attention_norm(hidden))
    else:
        split = layer.query_key_value(hidden.states)
    rows, length, _ = split.shape
    both = split.view(rows, length, 3, layer.heads, -1)[:, :, :2]
    if isinstance(layer, ModernLayer):
        both = rotate(both, given[2])
    query, key = both.float().transpose(1, 3).unbind(2)  # each (rows, heads, length, head width)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask, -torch.inf)
    return scores.softmax(-1)


def attention_heads(
    encoder: Any, examples: EncodedExamples, vocabulary: Vocabulary, device: torch.device
) -> dict[str, Any] | None:
    """What the heads of an encoder attend to in the first MOST_TEXTS rows of some texts.

    Rows whose weights in one layer exceed MOST_WEIGHTS are left out; None if no row is left.

    {"tokens", "shown", "positional", "vertical", "total", "texts", "heads": [{"layer", "head",
    "kind", "positional", "vertical", "picture"}]}: the number of heads of each kind, and for each
    head the two shares and its attention on one text, `picture[query][key]`, which has "tokens"
    rows and columns; "shown" are these tokens. That text is the longest of at most PICTURED tokens,
    or, if all are longer, the first PICTURED tokens of the shortest. Layers and heads count from 1;
    "both" is the kind of a head that is positional and vertical.
    """
    heads: int = encoder.shape.heads
    whole = _first(examples, heads)
    if not whole.units:
        return None
    together = max(1, min(TOGETHER, MOST_WEIGHTS // _weights(whole.lengths.max(), heads)))
    mark_ids = sorted({vocabulary.cls, vocabulary.sep, *_periods(vocabulary)})
    marks = torch.tensor(mark_ids, device=device)
    # maxima on neighbours, and on marks
    falls = torch.zeros((2, encoder.shape.layers, heads), dtype=torch.int64, device=device)
    tokens = 0
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode():
        for _, rows in whole.in_order(together):
            tokens += _count(encoder, rows.to(device), marks, falls)
        pictured, pictures = _pictures(encoder, whole, vocabulary, device)
    encoder.train(was_training)
    return {
        "tokens": len(pictured),
        "shown": pictured,
        **_described(falls.cpu().numpy() / tokens, pictures),
        "texts": len(whole.units),
    }


def _first(examples: EncodedExamples, heads: int) -> EncodedExamples:
    """The first units, in whole groups, as separate examples, without those that are too long."""
    count = max(1, MOST_TEXTS // examples.together) * examples.together
    units = [
        replace(unit, targets=None)  # which tasks that take turns have each in their own form
        for unit in examples.units[:count]
        if _weights(len(unit.tokens), heads) <= MOST_WEIGHTS
    ]
    return EncodedExamples(examples.examples, units, examples.vocabulary, examples.length)


def _weights(tokens: int, heads: int) -> int:
    """How many attention weights a row has in a layer: rows are padded to multiples of 8."""
    return heads * int(-(-tokens // 8) * 8) ** 2


def _periods(vocabulary: Vocabulary) -> list[int]:
    """The ids of the tokens that are a full stop, however the vocabulary marks words."""
    alone = vocabulary.tokenizer.decode_batch(
        [[number] for number in range(len(vocabulary))], skip_special_tokens=False
    )
    return [
        number for number, text in enumerate(alone) if text.strip().removeprefix("##") in PERIODS
    ]


def _count(encoder: Any, batch: TokenBatch, marks: Tensor, falls: Tensor) -> int:
    """Adds the positions of a batch's maxima to the counts; returns its number of tokens."""

    def take(layer: int, probabilities: Tensor) -> None:
        falls[:, layer] += _falls(probabilities, batch, marks)

    with watching(encoder, take):
        encoder(batch)
    return int((batch.pieces > 0).sum())


def _falls(probabilities: Tensor, batch: TokenBatch, marks: Tensor) -> Tensor:
    """The number of tokens whose maximum falls on a neighbour, and on a mark: (2, heads)."""
    real = batch.pieces > 0
    at = probabilities.argmax(-1)  # (rows, heads, length)
    here = torch.arange(at.shape[-1], device=at.device)
    near = (at - here).abs() == 1
    on_mark = torch.isin(batch.ids, marks)[:, None].expand_as(at).gather(-1, at)
    return torch.stack([(hit & real[:, None]).sum((0, 2)) for hit in (near, on_mark)])


def _pictures(
    encoder: Any, examples: EncodedExamples, vocabulary: Vocabulary, device: torch.device
) -> tuple[list[str], list[Any]]:
    """The tokens of the pictured text, and (heads, tokens, tokens) of each described layer."""
    sizes = np.array([len(unit.tokens) for unit in examples.units])
    # the longest that fits, else the shortest
    unit = examples.units[int(np.where(sizes <= PICTURED, sizes, -sizes).argmax())]
    alone = EncodedExamples(examples.examples, [unit], vocabulary, examples.length)
    most = min(PICTURED, len(unit.tokens))
    pictures: list[Any] = []

    def keep(layer: int, probabilities: Tensor) -> None:
        if layer < MOST_LAYERS:
            picture = probabilities[0, :MOST_HEADS, :most, :most].cpu().double().numpy()
            pictures.append(picture.round(3).tolist())

    with watching(encoder, keep):
        encoder(alone.padded(np.array([0])).to(device))
    names = [vocabulary.tokenizer.id_to_token(token) or "" for token in unit.tokens[:most]]
    return names, pictures


def _described(shares: np.ndarray, pictures: Sequence[Any]) -> dict[str, Any]:
    """The counts over all heads, and those of the first layers one by one."""
    positional, vertical = shares[0] >= POSITIONAL, shares[1] > VERTICAL
    heads = []
    for layer, of_layer in enumerate(pictures):
        for head, picture in enumerate(of_layer):
            kind = KINDS[bool(positional[layer, head]), bool(vertical[layer, head])]
            heads.append(
                {
                    "layer": layer + 1,
                    "head": head + 1,
                    "kind": kind,
                    "positional": round(float(shares[0, layer, head]), 4),
                    "vertical": round(float(shares[1, layer, head]), 4),
                    "picture": picture,
                }
            )
    return {
        "positional": int(positional.sum()),
        "vertical": int(vertical.sum()),
        "total": int(positional.size),
        "heads": heads,
    }
