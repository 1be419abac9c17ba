"""The engine that answers for a model of images: onnxruntime where possible, else PyTorch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tasklm.errors import RecipeError, RunError
from tasklm.images.model import GRAPH, ImagePredictor
from tasklm.recipe.schema import Hardware
from tasklm.serve.engines import ENGINES, NEEDED, Engine
from tasklm.storage.safe_reading import is_there


def open_engine(folder: Path, choice: str, threads: int, scratch: Path) -> Engine:
    """The model of a folder on the chosen engine; `scratch` holds the ONNX file it may need."""
    if choice not in ENGINES:
        raise RecipeError([f"--engine {choice}: choose from {', '.join(ENGINES)}"])
    hardware = Hardware(precision="fp32", device="cpu", threads=threads)
    if is_there(folder / GRAPH):
        if choice == "torch":
            problem = f"{folder} contains an ONNX file, which PyTorch cannot run"
            raise RunError(f"{problem}. Give the folder 'model' of the run.")
        why = "the folder contains an ONNX file"
        return Engine(ImagePredictor(folder, hardware), "onnx", why)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if choice == "torch":
        return Engine(ImagePredictor(folder, hardware), "torch", "as requested")
    if choice == "auto" and missing:
        why = f"{' and '.join(missing)} not installed: pip install 'tasklm[onnx]'"
        return Engine(ImagePredictor(folder, hardware), "torch", why)
    from tasklm.images.exporting import write_onnx

    target = scratch / "images-onnx"
    target.mkdir()
    write_onnx(folder, target)
    why = "as requested" if choice == "onnx" else "onnxruntime is installed"
    return Engine(ImagePredictor(target, hardware), "onnx", why)
