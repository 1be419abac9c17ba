"""How fast this machine trains: measured, never assumed."""

from __future__ import annotations

import time

import torch

from tasklm.train.hardware import Machine
from tasklm.train.loop import Settings, Stage, train
from tasklm.train.optimisers import adamw
from tasklm.train.schedules import WarmupLinear


def seconds_per_step(stage: Stage, machine: Machine, seconds: float, least: int = 4) -> float:
    """Returns the seconds of one step of a stage, which is spoilt by it: make another one to train."""
    optimiser = adamw(stage.module, 1e-5, 0.0)
    loop = train(stage, optimiser, WarmupLinear(1_000_000, 0.0), Settings(1e-5, 1.0, 0, 0.0), None, machine)
    next(loop), next(loop)  # the first internal and external steps also allocate
    started, steps = time.perf_counter(), 0
    while steps < least or time.perf_counter() - started < seconds:
        next(loop)
        steps += 1
    if machine.device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps
