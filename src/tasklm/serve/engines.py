"""What computes the answers: PyTorch, or onnxruntime where it is installed and the kind of task can
be exported.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import as_onnx
from tasklm.export.onnx_model import is_export
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.serve.predictor import Predictor

ENGINES = ("auto", "torch", "onnx")
NEEDED = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class Engine:
    """A loaded model, and by what it is computed and why."""

    predictor: Predictor
    name: str
    why: str


def open_engine(folder: Path, asked: str, threads: int, data: Data, scratch: Path) -> Engine:
    """The model of a folder on the engine that is asked for; an ONNX file that must be written
    first goes to `scratch`.
    """
    if asked not in ENGINES:
        raise RecipeError([f"--engine {asked}: choose from {', '.join(ENGINES)}"])
    hardware = Hardware(precision="fp32", threads=threads)
    if is_export(folder):
        if asked == "torch":
            raise RunError(
                f"{folder} holds an ONNX file, "
                f"which PyTorch does not run. Give the folder 'model' of the run."
            )
        return Engine(Predictor(folder, hardware, data), "onnx", "the folder holds an ONNX file")
    if asked == "onnx":
        return Engine(Predictor(as_onnx(folder, scratch), hardware, data), "onnx", "asked for")
    why = "asked for" if asked == "torch" else _against_onnx()
    if not why:
        try:
            return Engine(
                Predictor(as_onnx(folder, scratch), hardware, data),
                "onnx",
                "onnxruntime is installed",
            )
        except (
            RecipeError,
            RunError,
        ) as error:  # kinds, ensembles and graphs that cannot be exported; the terminal says so
            why = "; ".join(error.problems) if isinstance(error, RecipeError) else str(error)
    return Engine(Predictor(folder, hardware, data), "torch", why)


def _against_onnx() -> str:
    """What speaks against onnxruntime on this machine, "" for nothing."""
    if torch.cuda.is_available():
        return "there is a GPU"
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: pip install 'tasklm[onnx]'" if missing else ""
