"""Exact FLOPs of influence scores: forward and backward passes, and products of gradients.

As everywhere (docs/methods/costs.md), a multiply-add is two FLOPs, only matrix products count, and
padding is included. No gradient of a weight is computed by autograd, so that the backward pass of a
matrix costs one forward pass, and that of attention, which has no weights, two.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from tasklm.budget.costs import EncoderCost
from tasklm.influence.gradients import ProjectedGradients, layers_of
from tasklm.influence.scores import Influence


class GradientCost:
    """The cost of the gradients of single rows with respect to some layers of an encoder."""

    def __init__(
        self,
        encoder: Any,
        chosen: list[nn.Module],
        projected: ProjectedGradients,
        cost: EncoderCost,
        table: bool = False,
    ) -> None:
        runs = layers_of(encoder)
        self.cost, self.projected, self.table = cost, projected, table
        # the graph begins in the lowest, or before it with the table of embeddings
        self.lowest = 0
        if not table:
            self.lowest = next(number for number, layer in enumerate(runs) if layer in chosen)
        # whether the last run, where few tokens are computed, is this layer's
        self.ends = [layer is runs[-1] for layer in chosen]
        self.times = [sum(layer is run for run in runs) for layer in chosen]
        watched = (
            part
            for part in runs[self.lowest].modules()
            if isinstance(part, (nn.Linear, nn.LayerNorm))
        )
        # what the first matrix is given is then behind a watched output
        self.begins_with_norm = self.table or isinstance(next(watched), nn.LayerNorm)

    def passes(self, rows: int, length: int, wanted: int, head: float) -> float:
        """The FLOPs of both passes over padded rows; a head reads `wanted` tokens of each row.

        The head costs `head` FLOPs a token.
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
        if self.table and cost.embedding_width != cost.width:
            backward += tokens * 2 * cost.embedding_width * cost.width
        if self.begins_with_norm:
            return forward + backward
        return forward + backward - tokens * into

    def gradients(self, rows: int, length: int, wanted: int, others: int = 0) -> float:
        """The FLOPs of the rows' gradients, and of their products with `others` task batches."""
        of_row = 0
        for name in self.projected.parts:
            of_row += self._of_part(name, length, wanted) + 2 * self.projected.count(name) * others
        return float(rows * of_row)

    def _of_part(self, name: str, length: int, wanted: int) -> int:
        module: Any = self.projected.parts[name]
        size, with_bias = self.projected.size, int(module.bias is not None)
        if isinstance(module, nn.LayerNorm):  # sums over tokens are not matrix products
            width = module.weight.numel() * (1 + with_bias)
            return 2 * width * size if size and width > size else 0
        number, _, own = name.partition(".")
        tokens = self.times[int(number)] * length
        if self.ends[int(number)] and own != "query_key_value":
            tokens -= length - wanted
        sides = module.out_features, module.in_features + with_bias
        projected = sum(2 * tokens * side * size for side in sides if size and side > size)
        return int(projected + 2 * tokens * self.projected.count(name))


def scoring_flops(scorer: Influence, cost: EncoderCost, block: int) -> float:
    """The FLOPs of the task's gradients, and of the scores of passages, `block` units at a time."""
    model: Any = scorer.model
    table = scorer.table
    gradient_cost = GradientCost(
        model.encoder, scorer.layers, scorer.projected, cost, table is not None
    )
    head = sum(
        2.0 * part.in_features * part.out_features
        for part in model.head.modules()
        if isinstance(part, nn.Linear)
    )
    flops = 0.0
    for rows, length, read in scorer.task_shapes:
        passes = gradient_cost.passes(rows, length, read, head)
        flops += passes + gradient_cost.gradients(rows, length, read)
    for rows, length in scorer.pieces.shapes(block):
        # positions of a row, targets or not: see mask_rows
        read = max(1, round(model.objective.masks.rule.rate * length))
        passes = gradient_cost.passes(rows, length, read, cost.forward_per_target())
        products = gradient_cost.gradients(rows, length, read, scorer.task_batches)
        if table is not None:
            products += table.product_flops(rows, read)
        flops += scorer.draws * (passes + products)
    return flops
