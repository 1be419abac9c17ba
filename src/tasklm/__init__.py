"""tasklm: a strong, small, task-specific language model from scratch, out of a labelled data set
and a pile of text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tasklm.errors import DamagedError, DataError, RecipeError, RunError, TaskLMError, TrainingError

if TYPE_CHECKING:
    from tasklm.api.estimator import TaskLM
    from tasklm.api.studies import studies, study
    from tasklm.api.verbs import compare, distill, forecast, update
    from tasklm.pipeline.bill_check import verify_bill
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
    "compare",
    "distill",
    "forecast",
    "studies",
    "study",
    "update",
    "verify_bill",
]
__version__ = "0.1.0"


_PLACES = {
    "TaskLM": "tasklm.api.estimator",
    "check_files": "tasklm.pipeline.file_check",
    "compare": "tasklm.api.verbs",
    "distill": "tasklm.api.verbs",
    "forecast": "tasklm.api.verbs",
    "studies": "tasklm.api.studies",
    "study": "tasklm.api.studies",
    "update": "tasklm.api.verbs",
    "verify_bill": "tasklm.pipeline.bill_check",
}  # imported only on first use, so that `tasklm --help` is instant


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tasklm' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
