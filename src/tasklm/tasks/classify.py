"""One text → one class, with cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.errors import DataError
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tasks.metrics import METRICS


class ClassHead(nn.Module):
    """Reads the first token: Linear, GELU, Linear (TLM section 3)."""

    reads_firsts = True

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, classes)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, first: Tensor) -> Tensor:
        """Returns logits (examples, classes) from the states of first tokens (examples, width)."""
        logits: Tensor = self.out(self.dropout(functional.gelu(self.dense(self.dropout(first)))))
        return logits


@TASKS.register("classify")
class Classify:
    """Single-label classification; labels are texts, in the order of their first letter."""

    kind = "classify"

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self._number = {label: i for i, label in enumerate(self.labels)}

    @classmethod
    def from_examples(cls, train: Sequence[Example]) -> Classify:
        return cls(sorted({str(example.label) for example in train}))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Classify:
        return cls([str(label) for label in values["labels"]])

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "labels": self.labels}

    def targets(self, examples: Sequence[Example]) -> Tensor:
        for example in examples:
            if example.label not in self._number:
                raise DataError(
                    f"the label {example.label!r} does not occur in train",
                    file=example.file,
                    line=example.line,
                    remedy="Add training examples of it, or take the row out.",
                )
        return torch.tensor([self._number[example.label] for example in examples], dtype=torch.long)

    def head(self, width: int, dropout: float) -> nn.Module:
        return ClassHead(width, len(self.labels), dropout)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.float(), targets.flatten(), reduction="sum")

    def decode(self, outputs: Tensor) -> np.ndarray:
        return np.asarray(outputs.argmax(-1).cpu().numpy())

    def answers(self, outputs: Tensor) -> list[dict[str, Any]]:
        probabilities = outputs.float().softmax(-1).cpu().numpy()
        return [
            {"label": self.labels[int(row.argmax())], "probabilities": dict(zip(self.labels, map(float, row), strict=True))}
            for row in probabilities
        ]

    def score(self, metric: str, gold: np.ndarray, predicted: np.ndarray) -> float:
        return METRICS[metric](gold, predicted, len(self.labels))
