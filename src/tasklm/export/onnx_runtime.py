"""The one place that imports onnxruntime: with its telemetry switched off."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from tasklm.errors import RunError

SWITCH = "ORT_DISABLE_TELEMETRY"
REMEDY = (
    f"Set {SWITCH}=1 in the environment before Python starts, or run the tasklm command instead."
)


def load_onnxruntime() -> Any:
    """The module onnxruntime with telemetry off; raises ImportError if it is not installed.

    Its official builds send events to their vendor and keep a device id in the user's cache folder
    unless the variable is set before the first import (Privacy.md in the package). The function
    call alone comes after the first event.
    """
    if sys.modules.get("onnxruntime") is not None and os.environ.get(SWITCH) != "1":
        problem = "onnxruntime was imported before tasklm could switch off its telemetry"
        raise RunError(f"{problem}. {REMEDY}")
    os.environ[SWITCH] = "1"
    runtime: Any = importlib.import_module("onnxruntime")
    switch_off = getattr(runtime, "disable_telemetry_events", None)  # since 1.2
    if switch_off is not None:
        try:
            switch_off()
        except Exception as error:  # whatever it raises, events may be sent
            problem = f"the telemetry of onnxruntime cannot be switched off ({error})"
            raise RunError(
                f"{problem}. Use PyTorch: tasklm predict, serve --engine torch."
            ) from error
    return runtime
