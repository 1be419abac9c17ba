"""A trained model, or several that answer together, ready to answer: texts in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tasklm.errors import RunError
from tasklm.recipe import Data, Hardware
from tasklm.serve.inputs import Input, example_from
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.hardware import set_up
from tasklm.train.model import TaskModel, answers_of, load_models

AT_ONCE = 1024  # texts held in memory at a time


class Predictor:
    """Holds a loaded model folder; `data` names the columns of rows, where they have not the usual names."""

    def __init__(self, folder: Path, hardware: Hardware | None = None, data: Data | None = None) -> None:
        # fp32: the answer for a text must not depend on how the machine multiplies
        self.machine = set_up(hardware or Hardware(precision="fp32"))
        self.folder, self.data = folder, data or Data()
        self.models, self.task, self.vocabulary, self.config = load_models(folder, self.machine.device)

    @property
    def model(self) -> TaskModel:
        """Returns the one model; raises RunError where several answer together."""
        if len(self.models) > 1:
            problem = f"{self.folder} holds {len(self.models)} models that answer together; this takes one"
            raise RunError(f"{problem}. Give the folder 'model' beside it.")
        return self.models[0]

    @property
    def labels(self) -> list[str]:
        """Returns the class names."""
        return self.task.labels

    def answers(self, given: Sequence[Input]) -> list[Answer]:
        """Returns an answer per text, pair of texts, row (a mapping with the columns of train) or example, in order."""
        if not given:
            return []
        examples = [example_from(one, self.task, self.data) for one in given]
        encoded = EncodedExamples.of(self.task, examples, self.vocabulary, self.config["length"])
        return answers_of(self.models, self.task, encoded, self.machine)

    def stream(self, examples: Iterable[Example]) -> Iterator[tuple[Example, Answer]]:
        """Yields (example, answer) for any number of examples, a block at a time."""
        source = iter(examples)
        while block := list(islice(source, AT_ONCE)):
            yield from zip(block, self.answers(block), strict=True)
