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
    squashed = cells.tanh()
    of_cells, of_gates = _slopes(gates, cells, squashed)
    stays = gates[..., cells.shape[-1] : 2 * cells.shape[-1]]
    of_states, of_cell = above.float().clone(), torch.zeros_like(cells[0])
    back = recurrent.mT.contiguous()
    for step in reversed(range(len(cells))):
        of_hidden = of_states[step]
        if projection is not None:
            of_hidden = torch.bmm(of_hidden, projection.mT)
        of_cell = of_cell.addcmul(of_hidden, of_cells[step]).mul_(unwalled[step])
        by_gate = of_gates[step].view(*of_cell.shape[:2], 4, -1)
        by_gate[:, :, :3].mul_(of_cell[:, :, None])
        by_gate[:, :, 3].mul_(of_hidden)
        of_cell = of_cell * stays[step]
        if step:
            of_states[step - 1].baddbmm_(of_gates[step], back)
    of_recurrent = torch.zeros_like(recurrent)
    if len(cells) > 1:
        of_recurrent = torch.bmm(_by_direction(states[:-1]).mT, _by_direction(of_gates[1:]))
    if projection is None:
        return of_gates, of_recurrent, recurrent.new_zeros(0)
    hidden = gates[..., 3 * cells.shape[-1] :] * squashed
    return of_gates, of_recurrent, torch.bmm(_by_direction(hidden).mT, _by_direction(of_states))


def _slopes(gates: Tensor, cells: Tensor, squashed: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of all steps at once but for what comes from later ones: of a cell for that of
    its hidden state (steps, 2, rows, units), and of the gates (steps, 2, rows, 4 · units) for that
    of their cell; for that of the hidden state where the gate is the last.
    """
    enters, stays, new, leaves = gates.chunk(4, -1)
    earlier = torch.cat((torch.zeros_like(cells[:1]), cells[:-1]))
    of_gates = torch.empty_like(gates)
    of_enters, of_stays, of_new, of_leaves = of_gates.chunk(4, -1)
    torch.mul(enters - enters * enters, new, out=of_enters)
    torch.mul(stays - stays * stays, earlier, out=of_stays)
    torch.mul(1 - new * new, enters, out=of_new)
    torch.mul(leaves - leaves * leaves, squashed, out=of_leaves)
    return leaves * (1 - squashed * squashed), of_gates


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
