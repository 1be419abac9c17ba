"""The device, and seconds between two moments at which it has nothing left to do."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import torch

from tasklm.device.machine import cpu_computes_in_bf16


class StepTimer:
    """Counts steps; its clock runs from the end of the last warm-up step to the end of the last
    step.
    """

    def __init__(self, warmup: int, steps: int, device: torch.device) -> None:
        self.warmup, self.steps, self.device, self.done = warmup, steps, device, 0
        self.seconds = 0.0
        self._begun = self._now() if warmup == 0 else 0.0

    def step(self) -> None:
        """Notes that one more step was asked of the device."""
        self.done += 1
        if self.done == self.warmup:
            self._begun = self._now()
        if self.done == self.warmup + self.steps:
            self.seconds = self._now() - self._begun

    def _now(self) -> float:
        wait_for(self.device)
        return time.perf_counter()


def computes_in_bf16(device: torch.device) -> bool:
    """Whether bf16 matrix products are the fast ones here."""
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_computes_in_bf16()


def wait_for(device: torch.device) -> None:
    """When the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """The name of the GPU, or of the CPU as the kernel has it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
