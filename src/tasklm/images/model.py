"""A trained model of images as a folder, and what answers for it: PyTorch or an ONNX file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tasklm.coverage.calibration import Calibration
from tasklm.device.threads import threads_of
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.images.decoding import SUFFIXES, Encoded, Pixels, decoded
from tasklm.models.answering import Loaded
from tasklm.models.damage import damage_is_clear
from tasklm.recipe.data_sections import Data
from tasklm.recipe.image import IMAGE, LARGEST, SMALLEST
from tasklm.recipe.schema import Hardware
from tasklm.serve.predictor import Predictor
from tasklm.storage.checksums import files_in, require_whole, seal
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import MOST_JSON, is_there
from tasklm.tasks.base import Answer
from tasklm.tasks.image_classes import ImageClasses
from tasklm.tasks.readers.image_files import is_left_behind

if TYPE_CHECKING:  # PyTorch is imported for networks alone
    from tasklm.images.network import ImageNet
    from tasklm.models.networks import Networks

FORMAT = 1
CONFIG, WEIGHTS, GRAPH, RECORD = "config.json", "model.safetensors", "model.onnx", "export.json"
LOGITS, CELLS, PIXELS = "logits", "cells", "pixels"  # names in an ONNX file
AT_ONCE = 128  # images
Floats = NDArray[np.float64]
Given = str | Path | bytes | NDArray[Any]  # a file, its bytes, or pixels (height, width, colours)


@dataclass(frozen=True)
class Outputs:
    """What a model says of images."""

    logits: Floats  # (images, classes)
    cells: Floats  # (images, side, side, classes): the logits are their mean


class Engine(Protocol):
    """What computes outputs."""

    name: str

    def outputs(self, pixels: Pixels) -> Outputs:
        """The outputs for decoded images."""
        ...


class TorchEngine:
    """The network itself, on the CPU or the GPU."""

    name = "torch"

    def __init__(self, model: ImageNet) -> None:
        self.model = model

    def outputs(self, pixels: Pixels) -> Outputs:
        """The outputs for decoded images, in fp32."""
        import torch

        device = next(self.model.parameters()).device
        with torch.inference_mode():
            given = torch.from_numpy(np.ascontiguousarray(pixels)).to(device)
            features = self.model.features(self.model.scaled(given))
            logits, cells = self.model.logits(features), self.model.cell_logits(features)
        return Outputs(logits.double().cpu().numpy(), cells.double().cpu().numpy())


class OnnxEngine:
    """An exported graph, by onnxruntime on the CPU."""

    name = "onnx"

    def __init__(self, path: Path, threads: int) -> None:
        from tasklm.export.onnx_model import session_of

        self.path, self.session = path, session_of(path, threads)

    def outputs(self, pixels: Pixels) -> Outputs:
        """The outputs for decoded images."""
        given = {PIXELS: np.ascontiguousarray(pixels)}
        try:
            logits, cells = self.session.run([LOGITS, CELLS], given)
        except Exception as error:  # the library has no common error class
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"{self.path} cannot be run ({reason}). Export the model again."
            ) from None
        return Outputs(np.asarray(logits, np.float64), np.asarray(cells, np.float64))


class ImagePredictor(Predictor):
    """The model of a folder, ready to answer: images in, labels and probabilities out."""

    def __init__(self, folder: Path, hardware: Hardware | None = None) -> None:
        # not the parent's: there is no text, and no vocabulary
        self.hardware = hardware or Hardware(precision="fp32", device="cpu")
        self.folder, self.config = folder, read_config(folder)
        self.data, self.columns = Data(), dict[str, Data]()
        self.classes = ImageClasses([str(label) for label in self.config["task"]["labels"]])
        self.size = int(self.config["shape"]["size"])
        self.engine = _engine_of(folder, self.hardware)

    @property
    def task(self) -> ImageClasses:
        """The classes of the model."""
        return self.classes

    @property
    def loaded(self) -> Loaded:
        """Raises RunError: a model of images reads no text."""
        raise self._not_text()

    @property
    def networks(self) -> Networks:
        """Raises RunError: its network is of another kind."""
        raise self._not_text()

    def _not_text(self) -> RunError:
        problem = f"{self.folder} is a model of images, and this is for text"
        return RunError(f"{problem}. tasklm explain shows what the parts of an image add.")

    @property
    def is_calibrated(self) -> bool:
        """Whether sets can be asked for: not of images."""
        return False

    def of(self, name: str) -> Predictor:
        """Raises RecipeError: there is one task."""
        raise RecipeError([f"--task {name}: a model of images has one task; leave it out"])

    def calibration(self) -> Calibration:
        """Raises RecipeError: there are no sets of labels for images."""
        problem = "sets of labels with a promised coverage are for models of text"
        raise RecipeError([f"{problem}; use the probabilities"])

    def sets(self, given: Sequence[Any], coverage: float) -> list[dict[str, Any]]:
        """Raises RecipeError: there are no sets of labels for images."""
        self.calibration()
        return []

    def answers(self, given: Sequence[Any]) -> list[Answer]:
        """One answer per image: a file, the bytes of one, or an array of pixels."""
        answers: list[Answer] = []
        for start in range(0, len(given), AT_ONCE):
            answers += self.answers_of(self.outputs(given[start : start + AT_ONCE]))
        return answers

    def outputs(self, given: Sequence[Given]) -> Outputs:
        """What the network says of images."""
        return self.engine.outputs(self.decoded(given))

    def decoded(self, given: Sequence[Given]) -> Pixels:
        """Images as the network reads them."""
        pixels = np.empty((len(given), self.size, self.size, 3), np.uint8)
        for place, one in enumerate(given):
            pixels[place] = pixels_of(one, self.size, f"image {place}")
        return pixels

    def answers_of(self, outputs: Outputs) -> list[Answer]:
        """Answers from outputs; raises RunError where they are not finite."""
        if not np.isfinite(outputs.logits).all():
            raise RunError("the model's outputs are not finite, so it has no answer. Train again.")
        return answers_from(outputs.logits, self.labels)

    def decoded_uploads(self, given: Sequence[tuple[bytes, str]]) -> Pixels:
        """Images by their bytes and names, as the network reads them."""
        pixels = [decoded(content, name, self.size) for content, name in given]
        return np.stack(pixels)

    def explained(self, pixels: Pixels) -> list[dict[str, Any]]:
        """Answers for decoded images, with what each cell adds to the label."""
        outputs = self.engine.outputs(pixels)
        rows: list[dict[str, Any]] = []
        for answer, cells in zip(self.answers_of(outputs), outputs.cells, strict=True):
            rows.append({**answer, "cells": self._evidence(cells, answer).tolist()})
        return rows

    def _evidence(self, cells: Floats, answer: Answer) -> Floats:
        """How much each cell speaks for a label: its logits less their mean over all classes."""
        apart: Floats = cells - cells.mean(-1, keepdims=True)
        own: Floats = apart[..., self.labels.index(answer["label"])]
        return own

    def of_files(self, files: Iterable[Path]) -> Iterator[dict[str, Any]]:
        """Yields {"file", "label", "probabilities"} for any number of files, a block at a time."""
        source = iter(files)
        while block := list(islice(source, AT_ONCE)):
            for file, answer in zip(block, self.answers(block), strict=True):
                yield {"file": str(file), **answer}

    def evidence(self, image: Given) -> tuple[Answer, Pixels, Floats]:
        """The answer for an image, its pixels, and how much each cell speaks for that label:
        (side, side) logits less their mean over all classes.
        """
        pixels = self.decoded([image])
        outputs = self.engine.outputs(pixels)
        (answer,) = self.answers_of(outputs)
        return answer, pixels[0], self._evidence(outputs.cells[0], answer)


def answers_from(logits: Floats, labels: Sequence[str]) -> list[Answer]:
    """Labels with the probabilities of all classes."""
    odds = np.exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
    shares = odds / odds.sum(-1, keepdims=True)
    return [
        {
            "label": labels[int(row.argmax())],
            "probabilities": dict(zip(labels, map(float, row), strict=True)),
        }
        for row in shares
    ]


def pixels_of(given: Given, size: int, name: str) -> Pixels:
    """One image as pixels; raises DataError, which names it, for what is none."""
    if isinstance(given, bytes):
        return decoded(given, name, size)
    if isinstance(given, str | Path):
        encoded = Encoded.of_file(Path(given))
        return decoded(encoded.read(), encoded.name, size)
    from tasklm.images.archives import as_png, plain_pixels

    array = np.asarray(given)
    return decoded(as_png(plain_pixels(array[None], name)[0]), name, size)


def image_files(path: Path) -> list[Path]:
    """An image file, or those in and below a folder; raises DataError where there are none."""
    if not path.is_dir():
        if not is_there(path):
            remedy = "Give a PNG or JPEG file, or a folder of them."
            raise DataError("there is no such file or folder", file=path, remedy=remedy)
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in SUFFIXES and not is_left_behind(file.name)
    ]
    if not files:
        remedy = "Give a PNG or JPEG file, or a folder of them."
        raise DataError("the folder has no PNG or JPEG files", file=path, remedy=remedy)
    return files


def save_model(
    folder: Path, model: ImageNet, labels: Sequence[str], about: Mapping[str, Any]
) -> None:
    """Writes a model into a folder, with checksums."""
    from tasklm.models.weights import save_weights

    save_weights(folder / WEIGHTS, model.state_dict())
    seal(folder / CONFIG, described(model.shape.to_dict(), labels, about), [folder / WEIGHTS])


def described(
    shape: Mapping[str, Any], labels: Sequence[str], about: Mapping[str, Any]
) -> dict[str, Any]:
    """What config.json says of a model."""
    task = {"kind": IMAGE, "labels": list(labels)}
    return {"format": FORMAT, "task": task, "shape": dict(shape), "about": dict(about)}


def is_image_model(folder: Path) -> bool:
    """Whether a folder has a model of images, or an export of one."""
    path = folder / CONFIG
    if not is_there(path):
        return False
    try:
        values = read_json(path, MOST_JSON)
    except RunError:
        return False
    task = values.get("task") if isinstance(values, dict) else None
    return isinstance(task, dict) and task.get("kind") == IMAGE


def read_config(folder: Path) -> dict[str, Any]:
    """The description of the model in a folder; raises RunError if there is none, and
    DamagedError for one that does not fit together.
    """
    path = folder / CONFIG
    if not is_there(path):
        problem = f"{folder} contains no model (no {CONFIG})"
        raise RunError(f"{problem}. Give the folder 'model' of a finished run.")
    with damage_is_clear(folder):
        config: dict[str, Any] = read_json(path, MOST_JSON)
        if config.get("format") != FORMAT:
            version = repr(config.get("format"))[:20]
            raise RunError(
                f"{path} has format {version}, but this version reads {FORMAT} for images. "
                "Train the model again."
            )
        require_whole(folder, CONFIG)
        labels, size = config["task"]["labels"], config["shape"]["size"]
        if not isinstance(labels, list) or len(labels) != config["shape"]["classes"]:
            raise ValueError("its labels do not fit its shape")
        if type(size) is not int or not SMALLEST <= size <= LARGEST:
            raise ValueError(f"its images have {size!r} pixels")
        return config


def load_network(folder: Path, device: str = "cpu") -> ImageNet:
    """The network of a folder; raises RunError for an ONNX file."""
    from tasklm.images.network import ImageNet, NetShape
    from tasklm.models.weights import load_weights

    if is_there(folder / GRAPH):
        problem = f"{folder} contains an ONNX file; this needs the trained model"
        raise RunError(f"{problem}. Give the folder 'model' of the run.")
    config = read_config(folder)
    with damage_is_clear(folder):
        model = ImageNet(NetShape.from_dict(config["shape"]))
        model.load_state_dict(load_weights(folder / WEIGHTS))
    return model.eval().to(device)


def _engine_of(folder: Path, hardware: Hardware) -> Engine:
    if is_there(folder / GRAPH):
        return OnnxEngine(folder / GRAPH, threads_of(hardware))
    import torch

    if hardware.threads is not None:
        torch.set_num_threads(hardware.threads)
    device = "cpu" if hardware.device == "auto" else hardware.device
    return TorchEngine(load_network(folder, device))


def seal_export(folder: Path, config: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Writes what describes an ONNX file, with its checksum."""
    seal(folder / CONFIG, dict(config), [folder / GRAPH])
    files = files_in(folder, leave_out=("README.md", RECORD))
    seal(folder / RECORD, dict(record), files)
