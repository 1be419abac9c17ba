"""Gradients of single examples of a batch for some layers, from one forward and backward pass.

The gradient of an example's loss with respect to a linear map is Σ e_t [a_t, 1]ᵀ over its tokens t:
a_t is the input of the map, e_t the gradient of the loss at its output, and the 1 stands for the
bias. The gradient of a LayerNorm is Σ e_t ⊙ x̂_t and, of its bias, Σ e_t. Rows of a batch are
independent in an encoder without dropout, so the backward pass of the *sum* of the rows' losses
gives every e_t at once. No gradient of a weight is computed by autograd, and nothing below the
lowest chosen layer is differentiated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.bilstm import BiLstm
from tasklm.errors import RecipeError
from tasklm.train.steps import step_seed

AT_ONCE = {"cuda": 1 << 30}  # bytes of single gradients in memory at a time …
# … on other devices; the fewer at a time, the more often the gradients of the task are read
AT_ONCE_ELSEWHERE = 1 << 28
EMBEDDINGS = "embeddings"  # their name in select.influence_layers
TABLE = "table"  # of them, among the parts that are recorded


def chosen_layers(encoder: Any, layers: str) -> list[nn.Module]:
    """The layers that a setting names ("last", "all" or numbers such as "3,4"), each once; the
    embeddings, which it may name too, are none of them.
    """
    own = layers_of(encoder)
    if layers == "all":
        return list(dict.fromkeys(own))
    if layers == "last":
        return own[-1:]
    numbers = [part.strip() for part in layers.split(",") if part.strip() != EMBEDDINGS]
    wrong = [part for part in numbers if not part.isdecimal() or not 1 <= int(part) <= len(own)]
    if wrong:
        known = f"the scoring model has the layers 1 to {len(own)}"
        raise RecipeError(
            [
                f"select.influence_layers: {wrong[0]!r} is not a layer; {known}; "
                "or choose last, all or embeddings"
            ]
        )
    return list(dict.fromkeys(own[int(part) - 1] for part in numbers))


def layers_of(encoder: Any) -> list[nn.Module]:
    """The layers of an encoder in the order in which they run; a shared one comes several times.

    Of a Bi-LSTM it is the map behind its cells, whose weights each token meets once.
    """
    if isinstance(encoder, BiLstm):
        return [encoder.out]
    if hasattr(encoder, "layers"):
        return list(encoder.layers)
    return [encoder.shared] * encoder.shape.layers


def parameters_of(layers: Sequence[nn.Module]) -> int:
    """How many numbers the gradient of one example has."""
    return sum(parameter.numel() for parameter in parameters_in(layers))


def parameters_in(layers: Sequence[nn.Module]) -> list[nn.Parameter]:
    """The parameters of some layers, one layer after the other."""
    return list(itertools.chain.from_iterable(layer.parameters() for layer in layers))


@dataclass
class Call:
    """The recording of one call of a linear map or norm."""

    given: Tensor  # (rows, places, width in)
    errors: Tensor  # (rows, places, width out): gradient of the summed losses at the output

    def some(self, rows: slice) -> Call:
        """The same of some rows."""
        return Call(self.given[rows], self.errors[rows])


Recorded = dict[str, list[Call]]  # by the names of linear maps and norms


class Watch:
    """Records the inputs of linear maps and norms in layers, and gradients at their outputs; of a
    table of embeddings, the tokens that are looked up.
    """

    def __init__(self, layers: Sequence[nn.Module], table: nn.Module | None = None) -> None:
        self.parts: dict[str, nn.Module] = {}
        self.table = table
        for number, layer in enumerate(layers):
            for name, module in layer.named_modules():
                if isinstance(module, (nn.Linear, nn.LayerNorm)):
                    self.parts[f"{number}.{name}"] = module
                elif any(True for _ in module.parameters(recurse=False)):
                    kind = type(module).__name__
                    raise TypeError(
                        f"gradients of single examples are not implemented for {kind} ({name})"
                    )
        self._calls: list[tuple[str, Tensor, Tensor]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Records the forward passes inside.

        Weights must be frozen, so that the graph begins at the first watched output.
        """
        self._calls = []
        handles = [
            module.register_forward_hook(self._hook(name)) for name, module in self.parts.items()
        ]
        if self.table is not None:
            handles.append(self.table.register_forward_hook(self._hook(TABLE)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Any:
        def keep(_: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not output.requires_grad:
                output = output.detach().requires_grad_()
            self._calls.append((name, given[0].detach(), output))
            return output

        return keep

    def recorded(self, result: Tensor, rows: int, gradient: Tensor | None = None) -> Recorded:
        """All calls, after the backward pass of a loss that is a sum over the `rows` of the batch.

        `result` is that loss, or what it is computed from, with the `gradient` of the loss there.
        If the encoder computed only some tokens, there must be equally many of each row, in the
        order of the rows.
        """
        errors = torch.autograd.grad(result, [output for _, _, output in self._calls], gradient)
        recorded: Recorded = {name: [] for name in self.parts}
        for (name, given, _), error in zip(self._calls, errors, strict=True):
            if name == TABLE:
                given = given[..., None]
                recorded[TABLE] = []
            inputs = given.reshape(rows, -1, given.shape[-1])
            recorded[name].append(Call(inputs, error.reshape(rows, -1, error.shape[-1])))
        self._calls = []
        return recorded


class ProjectedGradients:
    """The gradients of single rows, one array per linear map or norm: whole, or projected.

    With `size` > 0 a matrix is projected on both sides, Σ (S e_t)(R [a_t, 1])ᵀ with seeded random
    signs S and R of `size` rows: products of two projected gradients are unbiased estimates of the
    products of the gradients, and the gradient itself never exists.
    """

    def __init__(self, parts: Mapping[str, nn.Module], size: int, seed: int) -> None:
        self.parts, self.size = dict(parts), size
        self._place: Tensor | None = None
        self._signs: dict[str, tuple[Tensor | None, Tensor | None]] = {}
        for number, (name, module) in enumerate(self.parts.items()):
            draw = torch.Generator().manual_seed(step_seed(seed, number))
            weight: Any = module.weight
            with_bias = int(module.bias is not None)
            if isinstance(module, nn.Linear):
                sides = weight.shape[0], weight.shape[1] + with_bias
                left, right = (self._signs_of(width, draw, weight) for width in sides)
            else:
                left, right = self._signs_of(weight.numel() * (1 + with_bias), draw, weight), None
            self._signs[name] = left, right

    def _signs_of(self, width: int, draw: torch.Generator, like: Tensor) -> Tensor | None:
        """A matrix (width, size) with E[M Mᵀ] = 1; None without projection."""
        if not self.size or width <= self.size:
            return None
        signs = torch.randint(0, 2, (width, self.size), generator=draw) * 2 - 1
        kind = torch.float64 if like.dtype == torch.float64 else torch.float32
        return (signs / math.sqrt(self.size)).to(like.device, kind)

    def count(self, name: str) -> int:
        """How many numbers a row has for one part."""
        module: Any = self.parts[name]
        with_bias = int(module.bias is not None)
        if isinstance(module, nn.Linear):
            widths = [module.out_features, module.in_features + with_bias]
        else:
            widths = [module.weight.numel() * (1 + with_bias)]
        if self.size:
            widths = [min(width, self.size) for width in widths]
        return math.prod(widths)

    @property
    def total(self) -> int:
        """How many numbers a row has."""
        return sum(self.count(name) for name in self.parts)

    def of(self, name: str, calls: Sequence[Call]) -> Tensor:
        """The gradients of one part (rows, count), over all its calls; valid until the next use."""
        module: Any = self.parts[name]
        left, right = self._signs[name]
        given, errors = wide(calls[0].given), wide(calls[0].errors)
        if len(calls) > 1:  # a layer that is run several times
            given = torch.cat([wide(call.given) for call in calls], dim=1)
            errors = torch.cat([wide(call.errors) for call in calls], dim=1)
        if isinstance(module, nn.LayerNorm):
            normed = functional.layer_norm(given, module.normalized_shape, eps=module.eps)
            vector = (errors * normed).sum(1)
            if module.bias is not None:
                vector = torch.cat([vector, errors.sum(1)], dim=1)
            return _projected(vector, left)
        if module.bias is not None:
            given = functional.pad(given, (0, 1), value=1.0)
        errors, given = _projected(errors, left), _projected(given, right)
        return self._multiplied(errors.transpose(1, 2), given).flatten(1)

    def _multiplied(self, left: Tensor, right: Tensor) -> Tensor:
        """The batched product, in reused memory: large new allocations cost page faults."""
        shape = (left.shape[0], left.shape[1], right.shape[2])
        if self._place is None or self._place.numel() < math.prod(shape):
            self._place = left.new_empty(math.prod(shape))
        return torch.bmm(left, right, out=self._place[: math.prod(shape)].view(shape))

    def chunks(self, name: str, calls: Sequence[Call]) -> Iterator[tuple[slice, Tensor]]:
        """Yields the gradients of one part, some rows at a time, so that not all exist at once."""
        rows, device = calls[0].given.shape[0], calls[0].given.device.type
        step = max(1, AT_ONCE.get(device, AT_ONCE_ELSEWHERE) // (4 * self.count(name)))
        for start in range(0, rows, step):
            some = slice(start, start + step)
            yield some, self.of(name, [call.some(some) for call in calls])

    def products(self, recorded: Recorded, others: Mapping[str, Tensor]) -> Tensor:
        """The products (rows, others) of the rows' gradients with others, which come by part."""
        first = next(iter(recorded))
        rows = recorded[first][0].given.shape[0]
        products = others[first].new_zeros(rows, len(others[first]))
        for name, calls in recorded.items():
            for some, gradients in self.chunks(name, calls):
                products[some] += gradients @ others[name].T
        return products


def _projected(numbers: Tensor, signs: Tensor | None) -> Tensor:
    if signs is None:
        return numbers
    return numbers @ signs


def wide(tensor: Tensor) -> Tensor:
    """The tensor in at least 32 bits: sums over tokens and products are never in 16."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
