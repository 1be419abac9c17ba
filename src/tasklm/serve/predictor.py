"""A trained model, ready to answer: texts in, labels and probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.recipe import Hardware
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.hardware import set_up
from tasklm.train.model import load_model, outputs_of

AT_ONCE = 1024  # texts held in memory at a time


class Predictor:
    """Holds a loaded model folder."""

    def __init__(self, folder: Path, hardware: Hardware | None = None) -> None:
        # fp32: the answer for a text must not depend on how the machine multiplies
        self.machine = set_up(hardware or Hardware(precision="fp32"))
        self.model, self.task, self.vocabulary, self.config = load_model(folder, self.machine.device)

    @property
    def labels(self) -> list[str]:
        """Returns the class names."""
        return self.task.labels

    def answers(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Returns an answer per text, in order."""
        if not texts:
            return []
        encoded = EncodedExamples([(text,) for text in texts], self.vocabulary, self.config["length"], None)
        return self.task.answers(outputs_of(self.model, encoded, self.machine))

    def stream(self, texts: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (text, answer) for any number of texts, a block at a time."""
        source = iter(texts)
        while block := list(islice(source, AT_ONCE)):
            yield from zip(block, self.answers(block), strict=True)
