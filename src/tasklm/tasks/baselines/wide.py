"""The wide part of a model: a linear model of words whose outputs are added to the network's.

As in "Wide & Deep Learning for Recommender Systems" (arXiv 1606.07792): the linear model memorises
which words indicate what, and the network, which starts with outputs of 0, learns the rest. They
are fitted separately: for its training examples, the network sees the outputs of linear models
fitted without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tasklm.storage.files import write_bytes, write_text
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Floats, Label, Task, Unit
from tasklm.tasks.baselines.answer_features import AnswerFeatures
from tasklm.tasks.baselines.featuriser import Featuriser
from tasklm.tasks.baselines.linear import AT_ONCE, Linear, Setting
from tasklm.tasks.baselines.option_features import OptionFeatures
from tasklm.tasks.baselines.word_features import WordFeatures
from tasklm.tasks.examples import Example
from tasklm.tasks.saved import of_format

FORMAT = 1
FOLDER = "wide"  # in that of a model
LARGEST = 5.0  # of a linear model's decisions: larger ones are no more certain
LARGEST_POINTS = 50.0  # of answers, which are compared with one another
MOST_REMEMBERED = 1 << 26  # bytes of the decisions on a list of examples
EDGE = 0.01  # scores closer to the ends of their range would have unbounded outputs
LARGEST_STRENGTH, CLASS_WEIGHTS = 1e6, (None, "balanced", "half")  # of a setting
FORMS = ("classes", "labels", "score", "options", "tags", "answers")  # kinds of outputs
Features = Featuriser | OptionFeatures | WordFeatures | AnswerFeatures
_SORTS: dict[str, type[OptionFeatures] | type[WordFeatures] | type[AnswerFeatures]] = {
    "options": OptionFeatures,
    "tags": WordFeatures,
    "answers": AnswerFeatures,
}


@dataclass
class Remembered:
    """A list of examples that is asked for several times, and the decisions on it once known."""

    examples: Sequence[Example]
    decisions: Floats | None = None


@dataclass(frozen=True)
class Wide:
    """A fitted linear model, and how its decisions become outputs of the kind that a head has."""

    form: str
    features: Features
    linear: Linear
    scale: float = 1.0
    offset: float = 0.0
    setting: Setting | None = None  # that was chosen on dev; None: not known, or nothing to choose
    remembered: list[Remembered] = field(
        default_factory=list, init=False, compare=False, repr=False
    )

    @property
    def width(self) -> int:
        """How many outputs it has for each unit."""
        columns = len(self.linear.offsets)
        if self.form == "classes" and columns == 1:
            return 2
        return columns

    def outputs(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """What is added to the head's outputs, (units, outputs)."""
        return outputs_of(self.form, self.decisions(examples), self.scale, self.offset)

    def remember(self, examples: Sequence[Example]) -> None:
        """Computes the decisions on this list only once; it must not change from now on."""
        self.remembered.append(Remembered(examples))

    def decisions(self, examples: Sequence[Example]) -> Floats:
        """The outputs of the linear model alone."""
        known = [one for one in self.remembered if one.examples is examples]
        for one in known:
            if one.decisions is not None:
                return one.decisions
        decisions = self._decided(examples)
        for one in known:
            if decisions.nbytes <= MOST_REMEMBERED:
                one.decisions = decisions
        return decisions

    def _decided(self, examples: Sequence[Example]) -> Floats:
        """The decisions, computed on a bounded number of examples at a time."""
        rows = [np.zeros((0, len(self.linear.offsets)))]
        for start in range(0, len(examples), AT_ONCE):
            parts = self.features.parts(examples[start : start + AT_ONCE])
            rows.append(self.linear.decisions(parts))
        return np.concatenate(rows)

    def units_with(
        self, task: Task, examples: Sequence[Example], outputs: Any
    ) -> tuple[list[Unit], list[Any]]:
        """Units of examples, and what a task keeps of their outputs."""
        units = self.features.units(examples)
        if not units:
            return [], []
        units[0].share_out(units, np.asarray(outputs, np.float64))
        return units, [task.keep(np.asarray(unit.added(), np.float64)) for unit in units]

    def rows_of(
        self, examples: Sequence[Example], outputs: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """The outputs of each example."""
        units = self.features.units(examples)
        if units:
            units[0].share_out(units, outputs)
        rows: list[list[Any]] = [[] for _ in examples]
        for unit in units:
            rows[unit.example].append(unit.wide)
        return [np.concatenate(own) for own in rows]

    def save(self, folder: Path) -> None:
        """Writes the features, the weights and wide.json, what they are."""
        folder.mkdir(parents=True, exist_ok=True)
        self.features.save(folder)
        arrays: dict[str, Any] = {
            "weights": np.ascontiguousarray(self.linear.weights, np.float32),
            "offsets": self.linear.offsets,
        }
        write_bytes(folder / "weights.safetensors", safetensors.numpy.save(arrays))
        about = {
            "format": FORMAT,
            "form": self.form,
            "view": self.linear.view,
            "scale": self.scale,
            "offset": self.offset,
        }
        if self.setting is not None:
            about["strength"] = self.setting.strength
            about["class_weight"] = self.setting.class_weight
        write_text(folder / "wide.json", json.dumps(about) + "\n")

    def as_saved(self) -> Wide:
        """The wide part as `load` reads it after `save`: with weights of single precision."""
        weights = self.linear.weights.astype(np.float32).astype(np.float64)
        return replace(self, linear=replace(self.linear, weights=weights))

    @classmethod
    def load(cls, folder: Path) -> Wide:
        """The wide part that `save` wrote; raises ValueError if its files do not fit together."""
        about = of_format(folder / "wide.json", FORMAT, "Train the model again.")
        form, view = str(about["form"]), tuple(map(str, about["view"]))
        if form not in FORMS:
            raise ValueError(f"wide.json names an unknown form {form!r}")
        features = _SORTS.get(form, Featuriser).load(folder)
        arrays = safetensors.numpy.load_file(require_regular(folder / "weights.safetensors"))
        linear = Linear(
            view, arrays["weights"].astype(np.float64), arrays["offsets"].astype(np.float64)
        )
        scale, offset = float(about["scale"]), float(about["offset"])
        wide = cls(form, features, linear, scale, offset, _setting_in(about, view))
        _require_fit(wide)
        return wide


def _setting_in(about: Mapping[str, Any], view: tuple[str, ...]) -> Setting | None:
    """The setting in wide.json; earlier versions did not keep it."""
    if "strength" not in about:
        return None
    strength, weight = float(about["strength"]), about.get("class_weight")
    if not 0 < strength < LARGEST_STRENGTH or weight not in CLASS_WEIGHTS:
        raise ValueError("wide.json names a setting that there is not")
    return Setting(view, strength, weight)


def outputs_of(form: str, decisions: Floats, scale: float, offset: float) -> NDArray[np.float32]:
    """Decisions of a linear model as outputs of a head; never infinite."""
    if form == "score":
        share = np.clip(scale * decisions + offset, EDGE, 1 - EDGE)
        return np.asarray(np.log(share / (1 - share)), np.float32)
    largest = LARGEST_POINTS if form == "answers" else LARGEST
    outputs = scale * np.clip(decisions, -largest, largest) + offset
    if form == "classes" and outputs.shape[1] == 1:
        # for the second of two classes, against the first
        outputs = np.concatenate([-outputs / 2, outputs / 2], axis=1)
    return np.asarray(outputs, np.float32)


def _require_fit(wide: Wide) -> None:
    """Raises ValueError where weights are not finite, or have no feature of their own."""
    weights, offsets = wide.linear.weights, wide.linear.offsets
    if weights.ndim != 2 or offsets.shape != weights.shape[1:]:
        raise ValueError("weights.safetensors does not contain the weights of a linear model")
    finite = np.isfinite(weights).all() and np.isfinite([wide.scale, wide.offset]).all()
    if not finite or np.isnan(offsets).any():
        raise ValueError("the weights of the linear model are not finite numbers")
    parts = wide.features.parts([])
    columns = sum(parts[name].shape[1] for name in wide.linear.view)
    if columns != len(weights):
        raise ValueError(f"the linear model has {len(weights):,} weights for {columns:,} features")


def labels_by(
    wide: Wide | None, task: Task, held: Mapping[str, Sequence[Example]]
) -> dict[str, list[Label]]:
    """The answers of the wide part alone for some splits, tuned on dev if that is among them; None
    without a wide part.
    """
    if wide is None:
        return {}
    predicted = {
        name: wide.units_with(task, part, wide.outputs(part)) for name, part in held.items()
    }
    if held.get("dev"):
        units, predictions = predicted["dev"]
        task = task.tuned(held["dev"], units, predictions)
    labels = {}
    for name, (units, predictions) in predicted.items():
        answers = task.answers(held[name], units, predictions)
        labels[name] = [task.label_of(answer) for answer in answers]
    return labels
