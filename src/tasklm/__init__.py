"""tasklm: a strong, small, task-specific language model from scratch, out of a labelled data set
and a pile of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasklm.errors import DamagedError, DataError, RecipeError, RunError, TaskLMError, TrainingError

if TYPE_CHECKING:
    from tasklm.api import TaskLM, distill, forecast
    from tasklm.pipeline.file_check import check_files

__all__ = [
    "DamagedError",
    "DataError",
    "RecipeError",
    "RunError",
    "TaskLM",
    "TaskLMError",
    "TrainingError",
    "check_files",
    "distill",
    "forecast",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports the heavy part only on first use, so that `tasklm --help` is instant."""
    if name == "TaskLM":
        from tasklm.api import TaskLM

        return TaskLM
    if name == "distill":
        from tasklm.api import distill

        return distill
    if name == "forecast":
        from tasklm.api import forecast

        return forecast
    if name == "check_files":
        from tasklm.pipeline.file_check import check_files

        return check_files
    raise AttributeError(f"module 'tasklm' has no attribute {name!r}")
