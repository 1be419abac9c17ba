"""The recurrence of an LSTM that is read in both directions at once, as one operator.

PyTorch's own LSTM with a projection is, on a CPU, a loop of small operators that autograd takes
back one by one, with a gradient of the whole recurrent matrix in every step; and no LSTM of its
goes into a compiled graph in one piece. Here a step of both directions is one matrix product, and
the gradients of the matrices are computed once, at the end. Gates stand in PyTorch's order: input,
forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("tasklm::recurrence", mutates_args=())
def recurrence(
    inputs: Tensor, unwalled: Tensor, recurrent: Tensor, projection: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """States (steps, 2, rows, width), and for the backward pass gates and cells.

    `inputs` (steps, 2, rows, 4 · units): what the tokens add to the gates; `unwalled` (steps, 2,
    rows, 1): 0 where everything before is forgotten, else 1; `recurrent` (2, width, 4 · units);
    `projection` (2, units, width), or None where width and units are the same.
    """
    with torch.autocast(inputs.device.type, enabled=False):
        return _forward(inputs, unwalled, recurrent, projection)


def _forward(
    inputs: Tensor, unwalled: Tensor, recurrent: Tensor, projection: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    steps, directions, rows, quadruple = inputs.shape
    units, width = quadruple // 4, recurrent.shape[1]
    gates = inputs.float().clone(memory_format=torch.contiguous_format)
    cells = gates.new_empty(steps, directions, rows, units)
    states = gates.new_empty(steps, directions, rows, width)
    cell = gates.new_zeros(directions, rows, units)
    state = gates.new_zeros(directions, rows, width)
    for step in range(steps):
        gate = gates[step].baddbmm_(state, recurrent)
        gate[..., : 2 * units].sigmoid_()
        gate[..., 2 * units : 3 * units].tanh_()
        gate[..., 3 * units :].sigmoid_()
        enters, stays, new, leaves = gate.chunk(4, -1)
        cell = torch.mul(stays, cell, out=cells[step]).addcmul_(enters, new).mul_(unwalled[step])
        state = states[step]
        if projection is None:
            torch.mul(leaves, cell.tanh(), out=state)
        else:
            torch.bmm(leaves * cell.tanh(), projection, out=state)
    return states, gates, cells


@recurrence.register_fake
def _(
    inputs: Tensor, unwalled: Tensor, recurrent: Tensor, projection: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    steps, directions, rows, quadruple = inputs.shape
    full = torch.float32
    states = inputs.new_empty((steps, directions, rows, recurrent.shape[1]), dtype=full)
    gates = inputs.new_empty((steps, directions, rows, quadruple), dtype=full)
    cells = inputs.new_empty((steps, directions, rows, quadruple // 4), dtype=full)
    return states, gates, cells


@torch.library.custom_op("tasklm::recurrence_backward", mutates_args=())
def recurrence_backward(
    above: Tensor,
    saved: list[Tensor],
    recurrent: Tensor,
    projection: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of inputs, recurrent matrices and projections (empty where there are none).

    `above` (steps, 2, rows, width) is the gradient of the states; `saved` are states, gates, cells
    and `unwalled` of the forward pass.
    """
    with torch.autocast(above.device.type, enabled=False):
        return _backward(above, saved, recurrent, projection)


def _backward(
    above: Tensor, saved: list[Tensor], recurrent: Tensor, projection: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    states, gates, cells, unwalled = saved
    steps, directions, rows, units = cells.shape
    of_gates, of_states = torch.empty_like(gates), above.float().clone()
    of_cell = torch.zeros_like(cells[0])
    back, none = recurrent.mT.contiguous(), torch.zeros_like(cells[0])
    for step in reversed(range(steps)):
        enters, stays, new, leaves = gates[step].chunk(4, -1)
        squashed = cells[step].tanh()
        of_hidden = of_states[step]
        if projection is not None:
            of_hidden = torch.bmm(of_hidden, projection.mT)
        of_cell = of_cell.addcmul(of_hidden * leaves, 1 - squashed * squashed)
        of_cell.mul_(unwalled[step])
        earlier = cells[step - 1] if step else none
        own = of_gates[step].view(directions, rows, 4, units)
        torch.mul(of_cell * new, enters * (1 - enters), out=own[:, :, 0])
        torch.mul(of_cell * earlier, stays * (1 - stays), out=own[:, :, 1])
        torch.mul(of_cell * enters, 1 - new * new, out=own[:, :, 2])
        torch.mul(of_hidden * squashed, leaves * (1 - leaves), out=own[:, :, 3])
        of_cell = of_cell * stays
        if step:
            of_states[step - 1].baddbmm_(of_gates[step], back)
    of_recurrent = torch.zeros_like(recurrent)
    if steps > 1:
        of_recurrent = torch.bmm(_by_direction(states[:-1]).mT, _by_direction(of_gates[1:]))
    if projection is None:
        return of_gates, of_recurrent, recurrent.new_zeros(0)
    hidden = gates[..., 3 * units :] * cells.tanh()
    return of_gates, of_recurrent, torch.bmm(_by_direction(hidden).mT, _by_direction(of_states))


@recurrence_backward.register_fake
def _(
    above: Tensor, saved: list[Tensor], recurrent: Tensor, projection: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    of_projection = recurrent.new_empty(0)
    if projection is not None:
        of_projection = torch.empty_like(projection)
    return torch.empty_like(saved[1]), torch.empty_like(recurrent), of_projection


def _by_direction(values: Tensor) -> Tensor:
    """Values (steps, 2, rows, width) as (2, steps · rows, width)."""
    return values.transpose(0, 1).flatten(1, 2)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    given, unwalled, recurrent, projection = inputs
    ctx.dtype, ctx.projected = given.dtype, projection is not None
    weights = (recurrent, projection) if ctx.projected else (recurrent,)
    ctx.save_for_backward(*output, unwalled, *weights)
    ctx.set_materialize_grads(False)


def _back(
    ctx: Any, above: Tensor | None, of_gates: Tensor | None, of_cells: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Nothing but the states is read by others, so that gates and cells have no gradients."""
    assert above is not None and of_gates is None and of_cells is None
    *saved, recurrent = ctx.saved_tensors[:5]
    projection = ctx.saved_tensors[5] if ctx.projected else None
    into, of_recurrent, of_projection = recurrence_backward(above, saved, recurrent, projection)
    return into.to(ctx.dtype), None, of_recurrent, of_projection if ctx.projected else None


recurrence.register_autograd(_back, setup_context=_keep)
