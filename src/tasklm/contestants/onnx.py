"""A model that `tasklm export` wrote for onnxruntime: onnx=FOLDER."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tasklm.contestants.base import CONTESTANTS, Job, Learned
from tasklm.contestants.parts.finished import FinishedModel, finished_model, is_exported
from tasklm.contestants.parts.finished import model_bytes as bytes_of
from tasklm.contestants.run import UNKNOWN
from tasklm.errors import RunError
from tasklm.storage.files import read_json
from tasklm.tasks.base import Task


@CONTESTANTS.register("onnx")
class OnnxExport:
    """An exported model, run by onnxruntime on the CPU."""

    takes_folder: ClassVar[bool] = True
    uses_minutes: ClassVar[bool] = False
    is_timed: ClassVar[bool] = True

    @classmethod
    def check(cls, source: Path) -> None:
        """Raises RunError for a folder that is no export for onnxruntime."""
        if not is_exported(source) or not list(source.glob("*.onnx")):
            raise RunError(
                f"{source} has no ONNX export. Write one: tasklm export runs/first --to onnx "
                f"--out {source}"
            )

    @classmethod
    def against(cls, task: Task) -> str:
        """Nothing is known before it is opened."""
        return ""

    def learn(self, job: Job) -> Learned:
        """Nothing is learnt."""
        assert job.source is not None
        finished_model(job, job.source)
        weights = read_json(job.source / "export.json").get("weights", "")
        return Learned(f"exported, {weights}", bytes_of(job.source), seconds=0.0, note=UNKNOWN)

    def load(self, job: Job) -> FinishedModel:
        """The exported model."""
        assert job.source is not None
        return finished_model(job, job.source)
