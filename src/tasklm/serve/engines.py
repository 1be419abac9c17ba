"""The engine that computes the answers: PyTorch, or onnxruntime where possible; NumPy for a linear
model of words alone.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from tasklm.errors import RecipeError, RunError
from tasklm.export.exporting import as_onnx
from tasklm.export.onnx_model import is_export
from tasklm.models.saved_model import read_saved_model
from tasklm.recipe.schema import Hardware
from tasklm.serve.predictor import Columns, Predictor

ENGINES = ("auto", "torch", "onnx")
NEEDED = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class Engine:
    """A loaded model, its engine, and why that engine was chosen."""

    predictor: Predictor
    name: str
    why: str


def open_engine(folder: Path, choice: str, threads: int, data: Columns, scratch: Path) -> Engine:
    """The model of a folder on the chosen engine; `scratch` holds the ONNX file it may need."""
    if choice not in ENGINES:
        raise RecipeError([f"--engine {choice}: choose from {', '.join(ENGINES)}"])
    hardware = Hardware(precision="fp32", threads=threads)
    if is_export(folder):
        if choice == "torch":
            problem = f"{folder} contains an ONNX file, which PyTorch cannot run"
            raise RunError(f"{problem}. Give the folder 'model' of the run.")
        return Engine(Predictor(folder, hardware, data), "onnx", "the folder contains an ONNX file")
    if choice == "onnx":
        return Engine(Predictor(as_onnx(folder, scratch), hardware, data), "onnx", "as requested")
    if read_saved_model(folder).is_linear:
        why = "the model is the linear model of words alone"
        return Engine(Predictor(folder, hardware, data), "numpy", why)
    if choice == "torch":
        return Engine(Predictor(folder, hardware, data), "torch", "as requested")
    why = _against_onnx()
    if not why:
        # kinds, ensembles and graphs that cannot be exported; shown on the terminal
        try:
            predictor = Predictor(as_onnx(folder, scratch), hardware, data)
            return Engine(predictor, "onnx", "onnxruntime is installed")
        except RecipeError as error:
            why = "; ".join(error.problems)
        except RunError as error:
            why = str(error)
    return Engine(Predictor(folder, hardware, data), "torch", why)


def _against_onnx() -> str:
    """The reason against onnxruntime on this machine, "" for none."""
    if torch.cuda.is_available():
        return "there is a GPU"
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return f"{' and '.join(missing)} not installed: pip install 'tasklm[onnx]'"
