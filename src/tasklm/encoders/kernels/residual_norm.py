"""LayerNorm of a residual plus a linear map's output and its bias, as two GPU kernels in Triton.

Compiled code sums the gradients of the norm's weight and bias and of the linear map's bias in small
kernels of their own, several for each norm. Here the pass that gives the gradient of the sum also
adds up all three. What is normalised is read twice, by the next linear map and by the next
residual: the function returns it twice, so that the two gradients meet inside the kernel and not in
a pass of their own.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 4  # that a program of the forward pass takes
PROGRAMS = 528  # of the backward pass at most, whatever the device: each gives one part of the sums
VALUES = 2048  # that a program has at hand at once: one row, or several where they are narrow
WARPS = 4
STAGES = 3  # rows that the backward pass reads ahead, and those at hand


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    hidden_at,
    added_at,
    added_bias_at,
    weight_at,
    bias_at,
    out_at,
    unit_at,
    scale_at,
    rows,
    EPSILON: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    hidden_at += first * WIDTH
    added_at += first * WIDTH
    out_at += first * WIDTH
    unit_at += first * WIDTH
    scale_at += first
    rows -= first
    column = tl.arange(0, COLUMNS)
    real = column < WIDTH
    added_bias = tl.load(added_bias_at + column, mask=real, other=0.0).to(tl.float32)
    weight = tl.load(weight_at + column, mask=real, other=0.0).to(tl.float32)
    bias = tl.load(bias_at + column, mask=real, other=0.0).to(tl.float32)
    for start in range(0, ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        here = (row < rows)[:, None] & real[None, :]
        place = row[:, None] * WIDTH + column[None, :]
        total = (
            tl.load(hidden_at + place, mask=here, other=0.0).to(tl.float32) + added_bias[None, :]
        )
        total += tl.load(added_at + place, mask=here, other=0.0).to(tl.float32)
        mean = tl.sum(total, 1) / WIDTH
        centred = tl.where(real[None, :], total - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + EPSILON)
        unit = centred * scale[:, None]
        tl.store(unit_at + place, unit.to(unit_at.dtype.element_ty), mask=here)
        tl.store(
            out_at + place,
            (unit * weight[None, :] + bias[None, :]).to(out_at.dtype.element_ty),
            mask=here,
        )
        tl.store(scale_at + row, scale, mask=row < rows)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    unit_at,
    scale_at,
    weight_at,
    gradient_at,
    residual_gradient_at,
    result_at,
    sums_at,
    rows,
    rows_each,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * rows_each
    unit_at += first * WIDTH
    scale_at += first
    gradient_at += first * WIDTH
    residual_gradient_at += first * WIDTH
    result_at += first * WIDTH
    rows = tl.minimum(rows - first, rows_each)
    column = tl.arange(0, COLUMNS)
    real = column < WIDTH
    weight = tl.load(weight_at + column, mask=real, other=0.0).to(tl.float32)
    of_weight = tl.zeros((BLOCK, COLUMNS), tl.float32)
    of_bias = tl.zeros((BLOCK, COLUMNS), tl.float32)
    of_added_bias = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for start in tl.range(0, rows_each, BLOCK, num_stages=STAGES):
        row = start + tl.arange(0, BLOCK)
        here = (row < rows)[:, None] & real[None, :]
        place = row[:, None] * WIDTH + column[None, :]
        gradient = tl.load(gradient_at + place, mask=here, other=0.0).to(tl.float32)
        gradient += tl.load(residual_gradient_at + place, mask=here, other=0.0).to(tl.float32)
        unit = tl.load(unit_at + place, mask=here, other=0.0).to(tl.float32)
        scale = tl.load(scale_at + row, mask=row < rows, other=0.0)
        of_unit = gradient * weight[None, :]
        shift, stretch = tl.sum(of_unit, 1) / WIDTH, tl.sum(of_unit * unit, 1) / WIDTH
        result = scale[:, None] * (of_unit - shift[:, None] - unit * stretch[:, None])
        tl.store(result_at + place, result.to(result_at.dtype.element_ty), mask=here)
        of_weight += gradient * unit
        of_bias += gradient
        of_added_bias += result
    sums_at += tl.program_id(0) * 3 * WIDTH + column
    tl.store(sums_at, tl.sum(of_weight, 0), mask=real)
    tl.store(sums_at + WIDTH, tl.sum(of_bias, 0), mask=real)
    tl.store(sums_at + 2 * WIDTH, tl.sum(of_added_bias, 0), mask=real)


def _shape(width: int) -> tuple[int, int, int]:
    """The width, and the rows and columns that a program has at hand at once."""
    columns = triton.next_power_of_2(width)
    return width, max(1, VALUES // columns), columns


@torch.library.triton_op("tasklm::residual_norm_of", mutates_args=())
def residual_norm_of(
    hidden: Tensor, added: Tensor, added_bias: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised sum, the same before weight and bias, and each row's inverse deviation."""
    out, unit = torch.empty_like(added), torch.empty_like(added)
    scale = torch.empty(added.shape[:1], dtype=torch.float32, device=added.device)
    width, block, columns = _shape(added.shape[1])
    kernel, rows = torch.library.wrap_triton(_forward), max(ROWS, block)
    grid = (triton.cdiv(added.shape[0], rows),)
    kernel[grid](
        hidden,
        added,
        added_bias,
        weight,
        bias,
        out,
        unit,
        scale,
        added.shape[0],
        epsilon,
        width,
        rows,
        block,
        columns,
        num_warps=WARPS,
    )
    return out, unit, scale


@torch.library.triton_op("tasklm::residual_norm_gradient", mutates_args=())
def residual_norm_gradient(
    unit: Tensor, scale: Tensor, weight: Tensor, gradient: Tensor, of_residual: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the sum, and in parts (parts, 3, width) those of weight, bias, added bias."""
    result, (rows, width) = torch.empty_like(unit), unit.shape
    rows_each = triton.cdiv(rows, PROGRAMS)
    sums = torch.empty(
        (triton.cdiv(rows, rows_each), 3, width), dtype=torch.float32, device=unit.device
    )
    _, block, columns = _shape(width)
    kernel = torch.library.wrap_triton(_backward)
    kernel[(len(sums),)](
        unit,
        scale,
        weight,
        gradient,
        of_residual,
        result,
        sums,
        rows,
        rows_each,
        width,
        block,
        columns,
        STAGES,
        num_warps=WARPS,
    )
    return result, sums


class _ResidualNorm(torch.autograd.Function):
    """The two passes, as a function: an operator of PyTorch may not return a tensor twice."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        added: Tensor,
        added_bias: Tensor,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        """The normalised sum twice."""
        out, unit, scale = residual_norm_of(hidden, added, added_bias, weight, bias, epsilon)
        ctx.save_for_backward(unit, scale, weight)
        ctx.hidden_type = hidden.dtype
        return out, out.view_as(out)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_residual: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all that `forward` was given."""
        unit, scale, weight = ctx.saved_tensors
        result, sums = residual_norm_gradient(
            unit, scale, weight, gradient.contiguous(), of_residual.contiguous()
        )
        sums = sums.sum(0)  # of weight, bias and added bias
        return result.to(ctx.hidden_type), result, sums[2], sums[0], sums[1], None


def residual_norm(
    hidden: Tensor, added: Tensor, added_bias: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """norm(hidden + added + added_bias) twice, for the next linear map and the next residual.

    All contiguous; `hidden` (tokens, width) may be of more bits than `added` (tokens, width), whose
    type is that of the result.
    """
    return cast(
        tuple[Tensor, Tensor],
        _ResidualNorm.apply(hidden, added, added_bias, weight, bias, epsilon),  # type: ignore[no-untyped-call]
    )
