"""How weights are drawn at the start, and modules that have none yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tasklm.encoders.base import Shape


def initial_spread(width: int) -> float:
    """The standard deviation of initial weights: BERT's 0.02 at its width of 768, else 1/√width.

    A sum of `width` products keeps its size when the spread grows as 1/√width. With 0.02
    everywhere, the layers of a narrow model start so close to zero that its first thousands of
    steps learn word frequencies alone.
    """
    return 0.02 * math.sqrt(768 / width)


def draw_weights(module: nn.Module, spread: float) -> None:
    """Draws the weights of one linear or embedding layer from N(0, spread²); biases are 0."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=spread)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def draw_encoder(encoder: nn.Module, shape: Shape) -> None:
    """Draws all weights of an encoder by the width of its layers, or of its embeddings."""
    for name, module in encoder.named_modules():
        outside = isinstance(module, nn.Embedding) or name == "projection"
        width = shape.token_width if outside else shape.width
        draw_weights(module, initial_spread(width))


def shrink_outputs(outputs: list[nn.Linear], layers: int) -> None:
    """Draws the matrices that add to the residual stream with a spread 1/√(2·layers) as wide.

    Pre-norm layers never bring the sum of 2·layers such parts back to size one, so that each has to
    begin small (Megatron-LM, arXiv 1909.08053, section 4.2; so does ModernBERT-base).
    """
    for module in outputs:
        draw_weights(module, initial_spread(module.out_features) / math.sqrt(2 * layers))


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Modules made inside know the shapes of their weights and take no memory for them."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Leaves random numbers out, for which PyTorch would import its compiler, for seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            if "tensor" in given:
                return given["tensor"]
            return args[0]
        return func(*args, **given)
