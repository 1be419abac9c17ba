"""Cross-entropy of logits over a vocabulary plus its bias, as two GPU kernels in Triton.

Logits of a vocabulary are the largest tensor of a training step, and compiled code goes over them
again and again. Here one pass gives the loss, and a second one both gradients: that of the logits
and that of the bias.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FORWARD, FORWARD_WARPS = 4096, 8  # logits of a row that a program has at hand at once
BACKWARD = (
    64,
    2,
    1024,
)  # rows that a program takes, and rows and columns that it has at hand at once

LOG2_E = tl.constexpr(1.4426950408889634)  # powers of two are an instruction each
LOW = tl.constexpr(-1.0e30)  # in place of a logit that there is not


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    logits_at, bias_at, answers_at, losses_at, logs_at, TYPES: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logits_at += row * TYPES
    answer = tl.load(answers_at + row)
    if answer >= 0:
        # The highest logit so far, and the sum of the powers of two of all relative to it. A plain
        # number: Triton's interpreter cannot subtract a tensor from a constexpr.
        top, total = -1.0e30, 0.0
        for start in range(0, TYPES, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            value = tl.load(logits_at + column, mask=column < TYPES, other=LOW).to(tl.float32)
            value = (value + tl.load(bias_at + column, mask=column < TYPES, other=0.0)) * LOG2_E
            higher = tl.maximum(top, tl.max(value, 0))
            total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(value - higher), 0)
            top = higher
        log = top + tl.log2(total)
        right = tl.load(logits_at + answer).to(tl.float32) + tl.load(bias_at + answer)
        tl.store(logs_at + row, log)
        tl.store(losses_at + row, log / LOG2_E - right)
    else:
        tl.store(logs_at + row, -LOW)  # which leaves no share to any token
        tl.store(losses_at + row, 0.0)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    logits_at,
    bias_at,
    answers_at,
    logs_at,
    gradients_at,
    result_at,
    sums_at,
    rows,
    TYPES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    logits_at += first * TYPES
    result_at += first * TYPES
    answers_at += first
    logs_at += first
    gradients_at += first
    rows -= first
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias = tl.load(bias_at + column, mask=column < TYPES, other=0.0)
    sums = tl.zeros((BLOCK, COLUMNS), tl.float32)
    for start in range(0, ROWS, BLOCK):
        row = start + tl.arange(0, BLOCK)
        here = (row < rows)[:, None] & (column < TYPES)[None, :]
        place = row[:, None] * TYPES + column[None, :]
        value = tl.load(logits_at + place, mask=here, other=LOW).to(tl.float32)
        log = tl.load(logs_at + row, mask=row < rows, other=0.0)
        answer = tl.load(answers_at + row, mask=row < rows, other=-1).to(tl.int32)
        gradient = tl.load(gradients_at + row, mask=row < rows, other=0.0)
        share = tl.exp2((value + bias[None, :]) * LOG2_E - log[:, None])
        result = (
            tl.where(answer[:, None] == column[None, :], share - 1.0, share) * gradient[:, None]
        )
        tl.store(result_at + place, result.to(result_at.dtype.element_ty), mask=here)
        sums += result
    tl.store(sums_at + tl.program_id(0) * TYPES + column, tl.sum(sums, 0), mask=column < TYPES)


@torch.library.triton_op("tasklm::token_losses_of", mutates_args=())
def token_losses_of(logits: Tensor, bias: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of the rows, and the logarithms to base 2 of the sums of their powers of e."""
    rows, types = logits.shape
    losses, logs = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    kernel = torch.library.wrap_triton(_forward)
    kernel[(rows,)](logits, bias, answers, losses, logs, types, FORWARD, num_warps=FORWARD_WARPS)
    return losses, logs


@torch.library.triton_op("tasklm::token_losses_gradient", mutates_args=())
def token_losses_gradient(
    logits: Tensor, bias: Tensor, answers: Tensor, logs: Tensor, gradients: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the logits, and that of the bias in parts (parts, types) to be summed."""
    result, (rows, types) = torch.empty_like(logits), logits.shape
    block, turns, columns = BACKWARD
    grid = (triton.cdiv(rows, block), triton.cdiv(types, columns))
    sums = torch.empty((grid[0], types), dtype=torch.float32, device=logits.device)
    kernel = torch.library.wrap_triton(_backward)
    kernel[grid](
        logits,
        bias,
        answers,
        logs,
        gradients,
        result,
        sums,
        rows,
        types,
        block,
        turns,
        columns,
    )
    return result, sums


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    logits, bias, answers = inputs
    _, logs = output
    ctx.save_for_backward(logits, bias, answers, logs)


def _differentiate(ctx: Any, gradients: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    logits, bias, answers, logs = ctx.saved_tensors
    result, sums = token_losses_gradient(logits, bias, answers, logs, gradients.contiguous())
    return result, sums.sum(0), None


token_losses_of.register_autograd(_differentiate, setup_context=_keep)


def token_losses(logits: Tensor, bias: Tensor, answers: Tensor) -> Tensor:
    """The cross-entropies (rows,) of logits (rows, types) + bias (types,) in fp32.

    Negative answers ask nothing and cost 0.
    """
    losses: Tensor = token_losses_of(logits, bias, answers)[0]
    return losses
