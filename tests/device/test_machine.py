from __future__ import annotations

import gc

import pytest
import torch

from tasklm.device.machine import Machine, is_out_of_memory


def test_recordings_are_released_when_none_of_them_runs_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = list[str]()
    machine = Machine(torch.device("cuda"), bf16=True, threads=1, compiles=True)
    for owner, name in (
        (torch.cuda, "synchronize"),
        (torch.compiler, "reset"),
        (gc, "collect"),
        (torch.cuda, "empty_cache"),
    ):
        monkeypatch.setattr(owner, name, lambda *given, name=name: done.append(name))
    machine.free_unused()
    assert done == ["synchronize", "reset", "collect", "empty_cache"]


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), True),
        (torch.AcceleratorError("CUDA error: out of memory\nSearch"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), False),
        (RuntimeError("out of memory of other kinds"), False),
    ],
)
def test_a_full_gpu_is_known_by_the_message_of_any_library(error: RuntimeError, full: bool) -> None:
    assert is_out_of_memory(error) == full
