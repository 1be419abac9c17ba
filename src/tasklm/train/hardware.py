"""Which device, how many threads, which arithmetic: chosen once, at the start."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from tasklm.errors import RecipeError
from tasklm.recipe import Hardware


@dataclass(frozen=True)
class Machine:
    """The device and arithmetic of this process."""

    device: torch.device
    bf16: bool
    threads: int

    def arithmetic(self) -> AbstractContextManager[None]:
        """Returns the context in which forward passes run: bf16 matrix products where the hardware has them."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext()


def set_up(settings: Hardware) -> Machine:
    """Returns the machine that the settings ask for, with the number of threads set."""
    threads = settings.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # denormal numbers make matrix products up to ten times slower
    _keep_freed_memory()
    device = _device(settings.device)
    if settings.precision == "auto":
        bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type == "cpu" and cpu_computes_in_bf16()
    else:
        bf16 = settings.precision == "bf16"
    return Machine(device, bf16, threads)


def _keep_freed_memory() -> None:
    """Tells the C library to keep large freed blocks for the next step, where it would hand them back to the system.

    Getting them anew costs a page fault every 4 KiB: up to a quarter of a training step on a CPU. At most 512 MiB are kept.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # numbers of malloc.h
        library.mallopt(mmap_threshold, 1 << 25)
        library.mallopt(trim_threshold, 1 << 29)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError([f"hardware.device = {name!r} cannot be used here: {str(error).splitlines()[0]}"]) from None
    return device


def cpu_computes_in_bf16() -> bool:
    """Returns whether this CPU has units for bf16 matrices (AMX), as the kernel lists them.

    Asked, not timed: on a busy machine a measurement may come out otherwise the next time, and a resumed run would change its arithmetic.
    """
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "amx_bf16" in cpuinfo.read_text(encoding="utf-8", errors="replace")
