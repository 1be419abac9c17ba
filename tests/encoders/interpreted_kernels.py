"""The Triton kernels, run by Triton's interpreter on a CPU in fp32, beside PyTorch: prints the
largest differences.

test_interpreted_kernels.py runs it in a process of its own: the interpreter is chosen when Triton
is imported.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from triton.runtime import interpreter

from tasklm.encoders.kernels import biased_gelu as gelu
from tasklm.encoders.kernels import residual_norm as norm
from tasklm.encoders.kernels import row_attention as rows
from tasklm.encoders.kernels import token_losses as losses
from tasklm.tokens.masking import NONE
from tasklm.tokens.packing import TILE, tile_starts
from tasklm.train.optim import adamw_kernel as adamw
from tasklm.train.optim.adamw import FusedAdamW

NOTHING = float("nan")  # what no program wrote must not pass for a result


class Bounds:
    """Stops a kernel that reads or writes outside the tensors that it was given."""

    def __init__(self) -> None:
        self.beside: list[Tensor] = []  # tensors that a kernel finds by their addresses
        self._ranges: list[tuple[int, int]] = []
        run = interpreter.GridExecutor.__call__
        load = interpreter.InterpreterBuilder.create_masked_load
        store = interpreter.InterpreterBuilder.create_masked_store

        def watched_run(executor: Any, *given: Any, **named: Any) -> Any:
            tensors = [*self.beside, *(one for one in given if isinstance(one, Tensor))]
            self._ranges = [(one.data_ptr(), one.data_ptr() + one.nbytes) for one in tensors]
            return run(executor, *given, **named)

        def watched_load(builder: Any, places: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            self._check(places, mask)
            return load(builder, places, mask, *rest, **named)

        def watched_store(builder: Any, places: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self._check(places, mask)
            return store(builder, places, value, mask, *rest)

        interpreter.GridExecutor.__call__ = watched_run
        interpreter.InterpreterBuilder.create_masked_load = watched_load
        interpreter.InterpreterBuilder.create_masked_store = watched_store

    def _check(self, places: Any, mask: Any) -> None:
        addresses = places.data[np.broadcast_to(mask.data, places.data.shape)].astype(np.int64)
        size = places.get_element_ty().primitive_bitwidth // 8
        inside = np.zeros(addresses.shape, np.bool_)
        for first, end in self._ranges:
            inside |= (addresses >= first) & (addresses + size <= end)
        if not inside.all():
            raise MemoryError("a kernel goes beyond its tensors")


BOUNDS = Bounds()


def pieces_of(length: int, *sizes: tuple[int, ...]) -> Tensor:
    """Rows with pieces of these sizes, and padding."""
    pieces = torch.zeros(len(sizes), length, dtype=torch.long)
    for row, lengths in enumerate(sizes):
        pieces[row, : sum(lengths)] = torch.repeat_interleave(
            torch.arange(1, len(lengths) + 1), torch.tensor(lengths, dtype=torch.long)
        )
    return pieces


def attention_error(
    pieces: Tensor, width: int, tiled: bool, biased: bool = True, heads: int = 2
) -> float:
    """The largest difference in mixed values and gradients, the bias's as a share of the tokens;
    cut padding is left out.
    """
    torch.manual_seed(0)
    count, length = pieces.shape
    real = pieces > 0 if tiled else torch.ones_like(pieces, dtype=torch.bool)
    tiles = torch.from_numpy(tile_starts(pieces.numpy(), TILE)) if tiled else None
    mask = pieces[:, None, :, None] == pieces[:, None, None, :]
    drawn, added = torch.randn(count, length, 3, heads, width), torch.randn(3 * heads * width)
    weights = torch.randn(count, length, heads, width) * real[:, :, None, None]
    outcomes = []
    for ours in (False, True):
        given, bias = drawn.clone().requires_grad_(), added.clone().requires_grad_()
        if ours:
            states = given + bias.detach().view(3, heads, width)
            mixed = rows.row_attention(states, bias if biased else None, pieces, tiles)
        else:
            query, key, value = (
                part.transpose(1, 2) for part in (given + bias.view(3, heads, width)).unbind(2)
            )
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask
            ).transpose(1, 2)
        mixed.backward(weights)
        assert given.grad is not None and (bias.grad is not None) == (biased or not ours)
        outcomes.append(
            (
                mixed.detach()[real],
                given.grad[real],
                torch.zeros(1) if bias.grad is None or not biased else bias.grad / length,
            )
        )
    errors = [(own - exact).abs().max() for exact, own in zip(*outcomes, strict=True)]
    assert all(bool(error.isfinite()) for error in errors)
    return max(map(float, errors))


def gelu_error(tokens: int, width: int) -> float:
    """The largest difference in values and gradients, the bias's as a share of the tokens."""
    torch.manual_seed(0)
    inner = (3 * torch.randn(tokens, width)).requires_grad_()
    bias = torch.randn(width, requires_grad=True)
    weights = torch.randn(tokens, width)
    wanted = functional.gelu(inner + bias)
    wanted.backward(weights)
    wanted = wanted.detach()
    out, result = torch.full_like(weights, NOTHING), torch.full_like(weights, NOTHING)
    grid = gelu._grid(inner, gelu.BACKWARD[0], gelu.BACKWARD[2])
    sums = torch.full((grid[0], width), NOTHING)
    given = inner.detach(), bias.detach()
    gelu._forward[gelu._grid(inner, gelu.FORWARD[0], gelu.FORWARD[2])](
        *given, out, *inner.shape, *gelu.FORWARD
    )
    gelu._backward[grid](*given, weights, result, sums, *inner.shape, *gelu.BACKWARD)
    assert inner.grad is not None and bias.grad is not None
    errors = [
        (out - wanted).abs().max(),
        (result - inner.grad).abs().max(),
        (sums.sum(0) - bias.grad).abs().max() / tokens,
    ]
    assert all(bool(error.isfinite()) for error in errors)
    return max(map(float, errors))


def norm_error(tokens: int, width: int, programs: int) -> float:
    """The largest difference in values and gradients from PyTorch in fp64, those of vectors as a
    share of the tokens.
    """
    torch.manual_seed(0)
    norm.PROGRAMS = programs
    hidden, added, first, second = (
        torch.randn(tokens, width, dtype=torch.float64) + 3 for _ in range(4)
    )
    vectors = [torch.randn(width, dtype=torch.float64) for _ in range(3)]
    vectors[1][:3] = 0.0  # also where the norm's weight is zero
    outcomes = []
    for kind in (torch.float64, torch.float32):
        given = [part.to(kind, copy=True).requires_grad_() for part in (hidden, added, *vectors)]
        if kind == torch.float64:
            out = again = functional.layer_norm(
                given[0] + given[1] + given[2], (width,), given[3], given[4], 1e-12
            )
        else:
            out, again = norm.residual_norm(*given, 1e-12)
        torch.autograd.backward([out, again], [first.to(kind), second.to(kind)])
        outcomes.append([out.detach(), again.detach(), *(part.grad for part in given)])
    errors = [(ours - exact).abs().max() for exact, ours in zip(*outcomes, strict=True)]
    assert all(bool(error.isfinite()) for error in errors)
    return max(*map(float, errors[:4]), *(float(error) / tokens for error in errors[4:]))


def losses_error(states: int, types: int, ignored: slice = slice(None, None, 3)) -> float:
    """The largest difference in losses and gradients from PyTorch in fp64, the bias's as a share of
    the states; the first and the last answer are the last token, unless they are ignored.
    """
    torch.manual_seed(0)
    drawn, added, weights = 9 * torch.randn(states, types), torch.randn(types), torch.randn(states)
    answers = torch.randint(types, (states,))
    answers[0] = answers[-1] = types - 1
    answers[ignored] = NONE
    outcomes = []
    for kind in (torch.float64, torch.float32):
        logits, bias = (part.to(kind, copy=True).requires_grad_() for part in (drawn, added))
        if kind == torch.float64:
            found = functional.cross_entropy(
                logits + bias, answers, ignore_index=NONE, reduction="none"
            )
        else:
            found = losses.token_losses(logits, bias, answers)
        found.backward(weights.to(kind))
        assert logits.grad is not None and bias.grad is not None
        outcomes.append((found.detach(), logits.grad, bias.grad / states))
    errors = [(ours - exact).abs().max() for exact, ours in zip(*outcomes, strict=True)]
    assert all(bool(error.isfinite()) for error in errors)
    return max(map(float, errors))


def adamw_error(skipped: bool, divisor: float, cautious: bool = False) -> float:
    """The largest difference of weights and state from torch's AdamW after three steps, or with
    `cautious` from ours by torch; a step called off changes nothing.
    """
    torch.manual_seed(0)
    sizes = ((3, 5), (adamw.CHUNK * 2,), (1,), (0,), (adamw.CHUNK + 7,), (adamw.CHUNK - 1,))
    drawn = [torch.randn(size) for size in sizes]
    exact = [torch.nn.Parameter(weight.clone()) for weight in drawn]
    peer = torch.optim.AdamW(exact, lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    if cautious:
        peer = FusedAdamW([{"params": exact, "weight_decay": 0.1, "cautious": True}], 0.01)
    weights, means, squares = ([torch.zeros_like(weight) for weight in drawn] for _ in range(3))
    steps = [torch.zeros(()) for _ in drawn]
    torch._foreach_copy_(weights, drawn)
    for step in range(3):
        gradients = [torch.randn_like(weight) for weight in drawn]
        for weight, gradient in zip(exact, gradients, strict=True):
            weight.grad = gradient / divisor
        if not skipped:
            peer.step()
            torch._foreach_add_(steps, 1.0)
        tensors = adamw.Tensors(
            weights, means, squares, steps, [adamw.aligned(gradient) for gradient in gradients]
        )
        if step == 0:
            table = adamw.Table(tensors)
        assert table.finds(tensors) and not adamw.Table(tensors).finds(
            dataclasses.replace(tensors, weights=gradients)
        )
        settings = adamw.Hyperparameters(0.01, 0.1, (0.9, 0.98), 1e-6, cautious)
        BOUNDS.beside = [*weights, *means, *squares, *steps, *tensors.gradients]
        adamw.move(table, torch.tensor(float(skipped)), torch.tensor(divisor), settings)
    pairs = list(zip(weights, exact, strict=True))
    if skipped:
        assert not any(bool(state.any()) for state in (*means, *squares))
    else:
        pairs += list(zip(means, (peer.state[weight]["exp_avg"] for weight in exact), strict=True))
        pairs += list(
            zip(squares, (peer.state[weight]["exp_avg_sq"] for weight in exact), strict=True)
        )
    BOUNDS.beside = []
    return max(
        float((ours - theirs).detach().abs().max()) for ours, theirs in pairs if ours.numel()
    )


def wrong_stages() -> list[object]:
    """The cases in which other stages are chosen than fit, by the bytes that Triton 3.6 needs for
    them.
    """
    # head width, tokens of a row: forward and backward, one stage and more, for compute capability
    # 9.0
    needed = {
        (64, 128): ([50176, 107520], [98304, 147968, 214016]),
        (128, 128): ([99328, 205824], [163840, 295424, 427008]),
        (32, 128): ([25600, 54272], [65536, 90624, 123904]),
        (64, 256): ([49152, 86272], [143360, 139648, 148224]),
        (128, 256): ([81920, 155904], [253952, 246144, 262912]),
    }
    wrong: list[object] = []
    for room in (65_536, 101_376, 166_912, 232_448):
        rows._room = lambda room=room: room  # type: ignore[assignment]
        for (width, length), sizes in needed.items():
            chosen = rows._stages(width, length)
            wrong += [
                (room, width, length)
                for stages, bytes_of in zip(chosen, sizes, strict=True)
                if stages and bytes_of[stages - 1] > room
            ]
            if room == 232_448 and width == 64 and chosen != (2, 3):
                wrong.append(("slow", chosen))
    return wrong


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # new memory holds no numbers
    torch.library.wrap_triton = lambda kernel: (
        kernel
    )  # the interpreter's kernels are called as they are
    for length in (40, 128, 200):
        pieces = pieces_of(length, (20, 9), (15, 11, 14), (min(length, 128),))
        print("attention", attention_error(pieces, 16, tiled=False))
    print("attention", attention_error(pieces_of(256, (100, 90, 20, 30), (128, 5, 60)), 32, True))
    print(
        "attention", attention_error(pieces_of(60, (20, 9), (15, 11, 14)), 16, False, biased=False)
    )
    # one token, with the heads of a width of 512; rows of padding alone; pieces of one token;
    # lengths that no block divides
    for pieces, tiled, heads in (
        (pieces_of(1, (1,), ()), False, 8),
        (pieces_of(17, (), (1,) * 17), False, 2),
        (pieces_of(129, (1, 128), (), (64, 64, 1)), False, 1),
        (pieces_of(129, (1, 128), (), (1,) * 129), True, 3),
        (pieces_of(257, (128, 128, 1), (127, 2, 127, 1)), True, 1),
        (pieces_of(255, (), (1, 253, 1)), False, 1),
    ):
        print("attention", attention_error(pieces, 16, tiled, heads=heads))
    for tokens, width in ((70, 200), (5, 7), (1, 1025), (33, 1)):
        print("gelu", gelu_error(tokens, width))
    for tokens, width, programs in (
        *((70, 200, 3), (33, 24, 4), (5, 7, 528), (3, 1030, 2)),
        *((1, 2049, 528), (67, 3, 2)),
    ):
        print("norm", norm_error(tokens, width, programs))
    for states, types in ((70, 200), (5, 7), (3, 9000), (1, 4097), (9, 1)):
        print("losses", losses_error(states, types))
    for ignored in (slice(0), slice(None), slice(1)):  # none, all, the first
        print("losses", losses_error(5, 1025, ignored))
    for skipped, divisor in ((False, 1.0), (False, 3.0), (True, 1.0)):
        print("adamw", adamw_error(skipped, divisor))
    print("adamw", adamw_error(False, 2.0, cautious=True))
    print("stages", len(wrong_stages()))
