"""Device, threads and precision: chosen once, at the start."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from tasklm.device.ranks import ALONE, Ranks, join
from tasklm.device.threads import threads_of
from tasklm.encoders.layers.attention import LONGEST_ROW
from tasklm.errors import RecipeError
from tasklm.recipe.schema import Hardware
from tasklm.tokens.batches import TokenBatch

MOST_SHAPES = 64  # that a function is compiled for: of tasks that take turns, each has some
MOST_REASON = 200  # characters of PyTorch's objection to a device
# what its builds raise then
UNUSABLE = (RuntimeError, AssertionError, AttributeError, ValueError, ImportError)
Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class Machine:
    """The device and precision of this process."""

    device: torch.device
    bf16: bool
    threads: int
    compiles: bool = False
    ranks: Ranks = ALONE
    memory: float | None = None  # bytes of the device that may be used; None: all that is free

    def arithmetic(self) -> AbstractContextManager[None]:
        """The context of forward passes: bf16 matrix products if the hardware supports them."""
        if self.bf16:
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def counts_pieces(self, batch: TokenBatch) -> bool:
        """Whether a batch needs the positions of its tiles or pieces: for long rows on a GPU."""
        long = batch.tiled or batch.ids.shape[1] > LONGEST_ROW
        return self.device.type == "cuda" and self.bf16 and long

    def compiled(self, function: Function, graphs: bool) -> Function:
        """The function compiled for one shape of its inputs, if this machine compiles.

        `graphs`: its launches on a GPU are recorded and replayed, for work so small that the GPU
        waits for them.
        """
        if not self.compiles:
            return function
        torch.compiler.config.recompile_limit = MOST_SHAPES
        mode = "reduce-overhead" if graphs and self.device.type == "cuda" else None
        return torch.compile(function, fullgraph=True, dynamic=False, mode=mode)  # type: ignore[return-value]

    def seed(self, seed: int) -> None:
        """Seeds the random draws of this process, on its device too.

        For devices that are not in use yet, PyTorch's own function keeps the seed and the whole
        stack of calls, which takes longer than a small step of training.
        """
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def synchronize(self) -> None:
        """Waits until the device has done all its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def free_bytes(self) -> float | None:
        """The free memory that this process may take; None if it is not counted."""
        if self.device.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(self.device)
        own = torch.cuda.memory_allocated(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        unused = float(free + reserved - own)
        if self.memory is None:
            return unused
        return min(unused, self.memory - own)

    def free_unused(self) -> None:
        """Releases cached memory: that of recorded graphs, and freed blocks."""
        if self.device.type != "cuda":
            return
        if self.compiles:
            # recordings are useless for other shapes and hold memory; none may still be running
            self.synchronize()
            torch.compiler.reset()
            gc.collect()  # not later, in the middle of a new recording
        torch.cuda.empty_cache()

    def peak_bytes(self) -> int:
        """The peak memory since the last call; 0 if it is not counted."""
        if self.device.type != "cuda":
            return 0
        peak = torch.cuda.max_memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak


def set_up(settings: Hardware) -> Machine:
    """The machine of the settings, with the number of threads set."""
    threads = threads_of(settings)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # denormal numbers make matrix products up to ten times slower
    _keep_freed_memory()
    device = _device(settings.device)
    bf16 = settings.precision == "bf16"
    if settings.precision == "auto":
        bf16 = _computes_in_bf16(device)
    compiles = settings.compile == "on" or (
        settings.compile == "auto" and device.type == "cuda" and bf16
    )
    memory = None
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        memory = _cap_memory(device, settings.memory)
    return Machine(device, bf16, threads, compiles, join(device), memory)


def _computes_in_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and cpu_computes_in_bf16()


def _cap_memory(device: torch.device, gigabytes: float | None) -> float | None:
    """Limits the memory that PyTorch takes to what the recipe allows; returns the bytes, if any."""
    if gigabytes is None:
        return None
    allowed = gigabytes * 1e9
    share = allowed / torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, share), device)
    return allowed


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error, PyTorch's own or CUDA's, says that the device's memory is full."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "CUBLAS_STATUS_ALLOC_FAILED" in text:
        return True
    return "CUDA" in text and "out of memory" in text


def _keep_freed_memory() -> None:
    """Tells the C library to keep large freed blocks for the next step.

    Getting them anew costs a page fault every 4 KiB: up to a quarter of a training step on a CPU.
    At most 512 MiB are kept.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # numbers of malloc.h
        library.mallopt(mmap_threshold, 1 << 25)
        library.mallopt(trim_threshold, 1 << 29)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        reason = "PyTorch finds no CUDA GPU" if built else "this PyTorch was built without CUDA"
        raise RecipeError(
            [f"hardware.device = {name!r}: {reason}; leave the key out, or set it to cpu"]
        )
    if name == "cuda":  # each of several processes has its own
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    except UNUSABLE as error:
        sentence = str(error).partition("\n")[0].partition(". ")[0]
        reason = sentence[:MOST_REASON] or type(error).__name__
        raise RecipeError([f"hardware.device = {name!r} cannot be used here: {reason}"]) from None
    return device


@cache
def cpu_computes_in_bf16() -> bool:
    """Whether this CPU has units for bf16 matrices (AMX), as the kernel lists them.

    Looked up, not timed: on a busy machine a measurement may differ next time, and a resumed run
    would change its precision.
    """
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "amx_bf16" in cpuinfo.read_text(encoding="utf-8", errors="replace")
