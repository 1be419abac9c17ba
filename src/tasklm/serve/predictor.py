"""A trained model or an ensemble, ready to predict: texts in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.device.machine import set_up
from tasklm.errors import RunError
from tasklm.export.onnx_model import is_export, open_onnx
from tasklm.models.one_task import alone
from tasklm.models.task_model import TaskModel, answers_of, load_models
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.serve.inputs import Input, example_from
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example

AT_ONCE = 1024  # texts held in memory at a time
Columns = Data | Mapping[str, Data]  # of a task, or of each of several


class Predictor:
    """The model of a folder, or the ONNX file of an export, which runs on the CPU.

    `data` names the columns of rows if they differ from the defaults, for each of several tasks by
    its name; an export knows those set in its recipe.
    """

    def __init__(
        self, folder: Path, hardware: Hardware | None = None, data: Columns | None = None
    ) -> None:
        # fp32: a prediction must not depend on the machine's precision
        hardware = hardware or Hardware(precision="fp32")
        self.folder, self.data, self.columns = folder, Data(), dict[str, Data]()
        if isinstance(data, Data):
            self.data = data
        elif data is not None:
            self.columns = dict(data)
        if is_export(folder):
            if hardware.device not in ("auto", "cpu"):
                problem = f"hardware.device = {hardware.device!r}: ONNX files run on the CPU here"
                raise RunError(f"{problem}. Give the folder 'model' of the run.")
            self.machine = set_up(replace(hardware, device="cpu", precision="fp32", compile="off"))
            self.loaded = open_onnx(folder, self.machine.threads)
            config = self.loaded.config
            for name, columns in config["columns_by_task"].items():
                self.columns[name] = _filled(self.columns.get(name, self.data), columns)
            self.data = _filled(self.data, config["columns"])
        else:
            self.machine = set_up(hardware)
            self.loaded = load_models(folder, self.machine.device)
        self.models, self.task = self.loaded.models, self.loaded.task

    def of(self, name: str) -> Predictor:
        """The predictor of one of several tasks, with the same encoder.

        Raises RecipeError for a name that no task has, or if the model has one task.
        """
        own = copy(self)
        own.loaded = alone(self.loaded, name)
        own.models, own.task = own.loaded.models, own.loaded.task
        own.data = self.columns.get(name, self.data)
        return own

    @property
    def model(self) -> TaskModel:
        """The single model; raises RunError for an ensemble or an ONNX file."""
        if len(self.models) > 1:
            several = f"an ensemble of {len(self.models)} models"
            problem = f"{self.folder} contains {several}; this needs a single model"
            raise RunError(f"{problem}. Give the folder 'model' beside it.")
        if not isinstance(self.models[0], TaskModel):
            problem = f"{self.folder} contains an ONNX file; this needs the trained model"
            raise RunError(f"{problem}. Give the folder 'model' of the run.")
        return self.models[0]

    @property
    def labels(self) -> list[str]:
        """The class names."""
        return self.task.labels

    def answers(self, given: Sequence[Input]) -> list[Answer]:
        """One answer per text, pair of texts, row (with the columns of train) or example."""
        if not given:
            return []
        examples = [example_from(one, self.task, self.data) for one in given]
        return answers_of(self.models, self.task, self.loaded.encoded(examples), self.machine)

    def stream(self, examples: Iterable[Example]) -> Iterator[tuple[Example, Answer]]:
        """Yields (example, answer) for any number of examples, a block at a time."""
        source = iter(examples)
        while block := list(islice(source, AT_ONCE)):
            yield from zip(block, self.answers(block), strict=True)


def _filled(data: Data, columns: Mapping[str, str]) -> Data:
    """Data with names of columns where it has none."""
    unset: dict[str, Any] = {
        name: value for name, value in columns.items() if not getattr(data, name)
    }
    return replace(data, **unset)
