"""How fast this machine trains: measured, never assumed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.device.machine import Machine
from tasklm.models.answering import ROWS
from tasklm.tasks.base import Task
from tasklm.tasks.heads.decoders import write
from tasklm.tasks.writing import search_of, writes
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples, EncodedTurns
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.steps import Stage

WARM = 2  # steps before the clock: the first internal and external ones also allocate …
WARM_COMPILED = 8  # … and where they are compiled, are recorded as well
PASSES = 4  # batches of a pass forward that are timed
# side of the matrices that show the ceiling: the faster, the larger
SQUARE_ON_GPU, SQUARE_IN_BF16, SQUARE = 8192, 2048, 1024


def seconds_per_step(
    stage: Stage, rule: Rule, machine: Machine, seconds: float, least: int = 4, turns: int = 1
) -> float:
    """The seconds of one step of a stage, which is used up by it: build another one to train.

    `turns`: that tasks take, each of which is compiled before the clock.
    """
    with machine.ranks.by_itself():
        steps = Loop(
            stage,
            make_optimiser(stage.module, rule),
            Schedule("linear", 1_000_000, 0.0),
            Settings(1.0, 0, 0.0),
            None,
            machine,
        ).run()
        for _ in range(turns * WARM_COMPILED if machine.compiles else WARM):
            next(steps)
        machine.synchronize()
        started, done = time.perf_counter(), 0
        while done < least or time.perf_counter() - started < seconds:
            next(steps)
            done += 1
        machine.synchronize()
        spent = time.perf_counter() - started
        steps.close()  # type: ignore[attr-defined]
    return spent / done


def seconds_per_example(
    model: nn.Module, examples: EncodedExamples, machine: Machine, task: Task | None = None
) -> float:
    """The seconds of a pass forward for an example, of a few batches from short to long ones; with
    a task that writes, of writing its text.
    """
    parts = examples.parts if isinstance(examples, EncodedTurns) else [examples]
    batches = []
    for turn, part in enumerate(parts):
        if len(part):
            batches += [replace(batch, turn=turn) for batch in _some(part)]
    model.eval()
    answer = _writing(model, examples, task) or model
    with torch.inference_mode(), machine.arithmetic():
        answer(batches[-1].to(machine.device))  # the first pass also allocates
        machine.synchronize()
        started = time.perf_counter()
        for batch in batches:
            answer(batch.to(machine.device))
        machine.synchronize()
        spent = time.perf_counter() - started
    return spent / sum(len(batch.ids) // batch.together for batch in batches)


def _writing(
    model: nn.Module, examples: EncodedExamples, task: Task | None
) -> Callable[[TokenBatch], Tensor] | None:
    """What writes texts of the usual length; a model that has learnt nothing would go on to the
    limit.
    """
    if task is None or not writes(task):
        return None
    usual = np.median([1 if one.targets is None else len(one.targets) for one in examples.units])
    search = replace(search_of(task), longest=max(1, int(usual)))
    return functools.partial(write, [model], search, examples.vocabulary)


def _some(examples: EncodedExamples) -> list[TokenBatch]:
    """A few batches from short examples to long ones."""
    order = np.argsort(examples.lengths, kind="stable")
    size = max(1, ROWS // examples.together)
    starts = np.linspace(0, max(0, len(order) - size), PASSES).astype(int).tolist()
    return [examples.padded(order[start : start + size]) for start in starts]


@functools.cache
def matmul_ceiling(
    machine: Machine, side: int = 0, seconds: float = 0.05, blocks: int = 3
) -> float:
    """The FLOP/s of one large square matrix product, the peak that training could reach.

    `side` is that of the matrices (0: by the machine), `seconds` the least that a block takes.
    Measured once per process, so that all stages are compared with the same number.
    """
    side = side or _side_for(machine)
    products = 10 if machine.device.type == "cuda" else 1  # without waiting for the device
    kind = torch.bfloat16 if machine.bf16 else torch.float32
    first, second = (torch.randn(side, side, device=machine.device).to(kind) for _ in range(2))
    out = torch.empty_like(first)
    best = 0.0
    for _ in range(blocks + 1):  # the first also allocates
        machine.synchronize()
        started, done = time.perf_counter(), 0
        while done < 2 or time.perf_counter() - started < seconds:
            for _ in range(products):
                torch.mm(first, second, out=out)
                done += 1
            machine.synchronize()
        best = max(best, 2 * side**3 * done / (time.perf_counter() - started))
    return best


def _side_for(machine: Machine) -> int:
    if machine.device.type == "cuda":
        return SQUARE_ON_GPU
    return SQUARE_IN_BF16 if machine.bf16 else SQUARE
