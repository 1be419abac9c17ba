"""A trained model or an ensemble, ready to predict: texts in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasklm.coverage.calibration import FILE as CALIBRATION
from tasklm.coverage.calibration import (
    Calibration,
    content_of_model,
    read_calibration,
    sets_for,
)
from tasklm.device.threads import threads_of
from tasklm.errors import RunError
from tasklm.export.onnx_model import is_export, open_onnx
from tasklm.models.all_tasks import answers_of_all
from tasklm.models.answering import Answering, Loaded
from tasklm.models.linear_model import load_linear
from tasklm.models.saved_model import read_saved_model
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.serve.inputs import Input, example_from
from tasklm.storage.safe_reading import is_there
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.writing import with_search

if TYPE_CHECKING:  # of models with a network
    from tasklm.models.networks import Networks
    from tasklm.models.task_model import TaskModel

AT_ONCE = 1024  # texts held in memory at a time
Columns = Data | Mapping[str, Data]  # of a task, or of each of several


class Predictor:
    """The model of a folder, or the ONNX file of an export, which runs on the CPU.

    PyTorch is imported for networks alone: neither the linear model of words nor an ONNX file needs
    it. With `few` texts to answer, small networks do without it too, on the CPU: its import would
    take longer than they do.

    `data` names the columns of rows if they differ from the defaults, for each of several tasks by
    its name; an export knows those set in its recipe.
    """

    def __init__(
        self,
        folder: Path,
        hardware: Hardware | None = None,
        data: Columns | None = None,
        few: bool = False,
    ) -> None:
        # fp32: a prediction must not depend on the machine's precision
        self.hardware = hardware or Hardware(precision="fp32")
        self.folder, self.data, self.columns = folder, Data(), dict[str, Data]()
        if isinstance(data, Data):
            self.data = data
        elif data is not None:
            self.columns = dict(data)
        self._name = ""  # of one of several tasks
        self._calibration: Calibration | None = None  # once it is read
        self.answering = _opened(folder, self.hardware, few)
        if is_export(folder):
            config = self.loaded.config
            for name, columns in config["columns_by_task"].items():
                self.columns[name] = _filled(self.columns.get(name, self.data), columns)
            self.data = _filled(self.data, config["columns"])

    def of(self, name: str) -> Predictor:
        """The predictor of one of several tasks, with the same encoder.

        Raises RecipeError for a name that no task has, or if the model has one task.
        """
        own = copy(self)
        own.answering, own._name = self.answering.alone(name), name
        own._calibration = None
        own.data = self.columns.get(name, self.data)
        return own

    def searching(self, beam: int | None = None, best: int = 1) -> Predictor:
        """The predictor with another beam, and so many candidates for each text.

        Raises RecipeError if its answers are not written, or for a number out of bounds.
        """
        own = copy(self)
        own.answering = self.answering.with_task(with_search(self.task, beam, best))
        return own

    @property
    def loaded(self) -> Loaded:
        """What was read of the model."""
        return self.answering.loaded

    @property
    def task(self) -> Task:
        """The task of the model."""
        return self.loaded.task

    @property
    def model(self) -> TaskModel:
        """The single network; raises RunError for an ensemble or an ONNX file."""
        loaded = self.networks.loaded
        if len(loaded.models) > 1:
            several = f"an ensemble of {len(loaded.models)} models"
            problem = f"{self.folder} contains {several}; this needs a single model"
            raise RunError(f"{problem}. Give the folder 'model' beside it.")
        return loaded.model

    @property
    def networks(self) -> Networks:
        """The networks that answer, or the silent one beside a linear model, which is read here;
        raises RunError for an ONNX file.
        """
        if is_export(self.folder):
            problem = f"{self.folder} contains an ONNX file; this needs the trained model"
            raise RunError(f"{problem}. Give the folder 'model' of the run.")
        from tasklm.models.networks import Networks, open_networks

        if isinstance(self.answering, Networks):
            return self.answering
        networks = open_networks(read_saved_model(self.folder), self.hardware)
        return networks.alone(self._name) if self._name else networks

    @property
    def labels(self) -> list[str]:
        """The class names."""
        return self.task.labels

    def answers(self, given: Sequence[Input]) -> list[Answer]:
        """One answer per text, pair of texts, row (with the columns of train) or example."""
        if not given:
            return []
        examples = [example_from(one, self.task, self.data) for one in given]
        encoded = self.loaded.encoded(examples)
        return self.task.answers(
            encoded.examples, encoded.units, self.answering.predictions(encoded)
        )

    def calibration(self) -> Calibration:
        """What dev said of the model, which sets with a promised coverage follow from.

        Raises RecipeError if its kind of task has no such sets, and RunError, with the way out, if
        it was not calibrated.
        """
        sets_for(self.task)
        if self._calibration is None:
            # the record of an export has the checksum of its calibration
            model = "" if is_export(self.folder) else content_of_model(self.loaded.config)
            self._calibration = read_calibration(self.folder, self._name, model)
        return self._calibration

    @property
    def is_calibrated(self) -> bool:
        """Whether sets can be asked for."""
        return self.task.sets is not None and is_there(self.folder / CALIBRATION)

    def sets(self, given: Sequence[Input], coverage: float) -> list[dict[str, Any]]:
        """A set of labels for each input, which has the right one in a share `coverage` of all
        cases, or {"unknown": why there is none}.
        """
        examples = [example_from(one, self.task, self.data) for one in given]
        return self.sets_of(examples, self.answers(examples), coverage)

    def sets_of(
        self, examples: Sequence[Example], answers: Sequence[Answer], coverage: float
    ) -> list[dict[str, Any]]:
        """The sets that follow from answers."""
        sets, promise = sets_for(self.task), self.calibration().promise(coverage)
        return [
            promise.row(sets, example.text, answer)
            for example, answer in zip(examples, answers, strict=True)
        ]

    def stream_sets(
        self, examples: Iterable[Example], coverage: float
    ) -> Iterator[tuple[Example, dict[str, Any]]]:
        """Yields (example, set) for any number of examples, a block at a time."""
        source = iter(examples)
        self.calibration().promise(coverage)  # a wrong one is refused before anything is read
        while block := list(islice(source, AT_ONCE)):
            yield from zip(block, self.sets(block, coverage), strict=True)

    def answers_of_all(self, given: Sequence[Mapping[str, Example]]) -> list[dict[str, Answer]]:
        """The answer of each of several tasks to each input, which has an example for the tasks
        that take it.
        """
        return answers_of_all(self.answering, given)

    def stream(self, examples: Iterable[Example]) -> Iterator[tuple[Example, Answer]]:
        """Yields (example, answer) for any number of examples, a block at a time."""
        source = iter(examples)
        while block := list(islice(source, AT_ONCE)):
            yield from zip(block, self.answers(block), strict=True)


def _opened(folder: Path, hardware: Hardware, few: bool) -> Answering:
    """What answers for a folder: an ONNX file, the linear model alone, or networks."""
    if is_export(folder):
        if hardware.device not in ("auto", "cpu"):
            problem = f"hardware.device = {hardware.device!r}: ONNX files run on the CPU here"
            raise RunError(f"{problem}. Give the folder 'model' of the run.")
        return open_onnx(folder, threads_of(hardware))
    saved = read_saved_model(folder)
    if saved.is_linear:
        return load_linear(saved)
    if few:
        from tasklm.models.numpy_networks import open_numpy

        if (networks := open_numpy(saved)) is not None:
            return networks
    from tasklm.models.networks import open_networks

    return open_networks(saved, hardware)


def _filled(data: Data, columns: Mapping[str, str]) -> Data:
    """Data with names of columns where it has none."""
    unset: dict[str, Any] = {
        name: value for name, value in columns.items() if not getattr(data, name)
    }
    return replace(data, **unset)
