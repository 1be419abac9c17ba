"""Exact FLOPs of influence scores: forward passes, backward passes through the chosen layers, and
products of gradients.

As everywhere (docs/methods/costs.md), a multiply and an add are two FLOPs, only matrix products
count, and padding counts with the rest. No gradient of a weight is computed by autograd, so that
the backward pass of a matrix costs one forward pass, and that of attention, which has no weights,
two.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from tasklm.budget.costs import EncoderCost
from tasklm.influence.gradients import Numbers
from tasklm.influence.scores import Influence


class GradientCost:
    """What the gradients of single rows with respect to some layers of an encoder cost."""

    def __init__(
        self, encoder: Any, chosen: list[nn.Module], numbers: Numbers, cost: EncoderCost
    ) -> None:
        runs = (
            list(encoder.layers)
            if hasattr(encoder, "layers")
            else [encoder.shared] * encoder.shape.layers
        )
        self.cost, self.numbers = cost, numbers
        self.lowest = next(
            number for number, layer in enumerate(runs) if any(layer is one for one in chosen)
        )  # the graph begins in it
        self.ends = [
            layer is runs[-1] for layer in chosen
        ]  # whether the last run, where few tokens are computed, is this layer's
        self.times = [sum(layer is run for run in runs) for layer in chosen]
        first = next(
            part
            for part in runs[self.lowest].modules()
            if isinstance(part, (nn.Linear, nn.LayerNorm))
        )
        self.begins_with_norm = isinstance(
            first, nn.LayerNorm
        )  # what its first matrix is given is then behind a watched output

    def passes(self, rows: int, length: int, wanted: int, head: float) -> float:
        """Returns FLOPs of a forward and backward pass of padded rows; a head reads `wanted` tokens
        of each, for `head` FLOPs a token.
        """
        cost, tokens, read = self.cost, rows * length, rows * wanted
        into = 6 * cost.width**2
        behind = cost.unwanted_per_token()
        attention = 4 * length * cost.width
        forward = tokens * cost.forward_per_token(length) - (tokens - read) * behind + read * head
        layers = cost.layers - self.lowest
        backward = (
            tokens * layers * (into + 2 * attention + behind)
            - (tokens - read) * behind
            + read * head
        )
        return forward + backward - (0 if self.begins_with_norm else tokens * into)

    def gradients(self, rows: int, length: int, wanted: int, others: int = 0) -> float:
        """Returns FLOPs of the rows' gradients out of what the passes kept, and of their products
        with those of `others` task batches.
        """
        return float(
            rows
            * sum(
                self._of_part(name, length, wanted) + 2 * self.numbers.count(name) * others
                for name in self.numbers.parts
            )
        )

    def _of_part(self, name: str, length: int, wanted: int) -> int:
        module: Any = self.numbers.parts[name]
        size, with_bias = self.numbers.size, int(module.bias is not None)
        if isinstance(module, nn.LayerNorm):  # sums over tokens are no matrix products
            width = module.weight.numel() * (1 + with_bias)
            return 2 * width * size if size and width > size else 0
        number, _, own = name.partition(".")
        tokens = self.times[int(number)] * length
        if self.ends[int(number)] and own != "query_key_value":
            tokens -= length - wanted
        sides = module.out_features, module.in_features + with_bias
        projected = sum(2 * tokens * side * size for side in sides if size and side > size)
        left, right = (min(side, size) if size else side for side in sides)
        return int(projected + 2 * tokens * left * right)


def scoring_flops(scorer: Influence, cost: EncoderCost, block: int) -> float:
    """Returns FLOPs of the gradients of the task, which count once, and of the scores of all
    passages, `block` units at a time.
    """
    model: Any = scorer.model
    made = GradientCost(model.encoder, scorer.layers, scorer.numbers, cost)
    head = sum(
        2.0 * part.in_features * part.out_features
        for part in model.head.modules()
        if isinstance(part, nn.Linear)
    )
    flops = 0.0
    for rows, length, read in scorer.task_shapes:
        flops += made.passes(rows, length, read, head) + made.gradients(rows, length, read)
    for rows, length in scorer.pieces.shapes(block):
        read = max(
            1, round(model.objective.masks.rate * length)
        )  # places of a row, targets or not: see mask_rows
        one = made.passes(rows, length, read, cost.forward_per_target()) + made.gradients(
            rows, length, read, scorer.task_batches
        )
        flops += scorer.draws * one
    return flops
