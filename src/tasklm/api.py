"""TaskLM: fit, predict, score, save and load, with scikit-learn's habits."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin

from tasklm.errors import DataError, RunError
from tasklm.evaluate.explaining import Explanation
from tasklm.evaluate.scores import Scores
from tasklm.pipeline import fit as run_pipeline
from tasklm.recipe_files import load as load_recipe
from tasklm.runs import write_text
from tasklm.serve.explainer import Explainer
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import score
from tasklm.tracking import Tracker


class TaskLM(ClassifierMixin, BaseEstimator):
    """A text classifier trained from scratch on a labelled set and the part of a corpus that matters for it.

    corpus: files, folders or globs of raw text; may also be given to `fit`.
    minutes: wall time for a whole `fit`.
    recipe: path of a recipe, under the other settings.
    settings: recipe keys by dotted name, such as {"select.k": 500}.
    out: run folder; by default a temporary one that goes with the model.
    """

    def __init__(
        self,
        corpus: str | Sequence[str] | None = None,
        minutes: float | None = None,
        recipe: str | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.corpus, self.minutes, self.recipe, self.settings = corpus, minutes, recipe, settings
        self.out, self.verbose = out, verbose

    def fit(
        self,
        train: Any,
        labels: Sequence[Any] | None = None,
        *,
        corpus: str | Sequence[str] | None = None,
        dev: str | None = None,
        test: str | None = None,
    ) -> TaskLM:
        """Trains on a labelled file, or on texts and their labels; returns itself."""
        folder = Path(self.out) if self.out else self._temporary()
        overrides: dict[str, Any] = dict(self.settings or {})
        overrides["data.train"] = self._train_file(train, labels, folder)
        given = corpus if corpus is not None else self.corpus
        if given is not None:
            overrides["data.corpus"] = [given] if isinstance(given, str) else list(given)
        overrides |= {key: value for key, value in (("data.dev", dev), ("data.test", test), ("budget.minutes", self.minutes)) if value}
        recipe = load_recipe(Path(self.recipe) if self.recipe else None, overrides)
        self.scores_: Scores | None = run_pipeline(recipe, folder, Tracker(Console(stderr=True) if self.verbose else None))
        self.folder_ = folder
        self._use(folder / "model")
        original = {str(label): label for label in labels} if labels is not None else {}
        self.classes_ = np.array([original.get(label, label) for label in self.predictor_.labels])
        return self

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Returns the label of each text."""
        best = self.predict_proba(texts).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Returns the probability of each class (columns in the order of `classes_`) for each text."""
        if not hasattr(self, "predictor_"):
            raise RunError("this TaskLM has not been trained. Call fit first, or TaskLM.load.")
        answers = self.predictor_.answers([str(text) for text in texts])
        rows = [[answer["probabilities"][label] for label in self.predictor_.labels] for answer in answers]
        return np.array(rows).reshape(len(rows), len(self.predictor_.labels))

    def score(self, texts: Iterable[str], labels: Sequence[Any], metric: str = "accuracy") -> float:
        """Returns a metric (accuracy, macro_f1 or micro_f1) of the predictions."""
        number = {label: i for i, label in enumerate(self.classes_.tolist())}
        strange = [label for label in labels if label not in number]
        if strange:
            raise DataError(f"the label {strange[0]!r} was not in train", remedy="Leave such rows out.")
        names = self.predictor_.labels
        found = [names[best] for best in self.predict_proba(texts).argmax(axis=1)]
        return score(self.predictor_.task.metric(metric), [names[number[label]] for label in labels], found)

    def explain(self, text: str, top: int = 5) -> Explanation:
        """Returns the prediction for a text with the training examples and selected passages that pushed for and against it."""
        if not hasattr(self, "predictor_"):
            raise RunError("this TaskLM has not been trained. Call fit first, or TaskLM.load.")
        if not hasattr(self, "explainer_"):
            self.explainer_ = Explainer(self.model_folder_)
        return self.explainer_.explain(str(text), top)

    def save(self, folder: str | Path) -> None:
        """Copies the trained model to a new folder, from which `load` and `tasklm predict` read it."""
        if not hasattr(self, "model_folder_"):
            raise RunError("this TaskLM has not been trained. Call fit first.")
        if Path(folder).exists():
            raise RunError(f"{folder} exists already. Choose a new folder.")
        shutil.copytree(self.model_folder_, folder)

    @classmethod
    def load(cls, folder: str | Path) -> TaskLM:
        """Returns a trained model from a run folder, from the folder `model` in it, or from what `save` wrote."""
        model, where = cls(), Path(folder)
        inside = where if (where / "config.json").exists() or not (where / "model").is_dir() else where / "model"
        model._use(inside)
        model.classes_ = np.array(model.predictor_.labels)
        return model

    def _use(self, folder: Path) -> None:
        self.predictor_, self.model_folder_ = Predictor(folder), folder
        self.__dict__.pop("explainer_", None)  # it was of the model before

    def _temporary(self) -> Path:
        self._keeps_folder = tempfile.TemporaryDirectory(prefix="tasklm-")  # deleted with this object
        return Path(self._keeps_folder.name) / "run"

    def _train_file(self, train: Any, labels: Sequence[Any] | None, folder: Path) -> str:
        if isinstance(train, (str, Path)) and labels is None:
            return str(train)
        if labels is None:
            raise DataError("there are texts but no labels", remedy="Call fit(texts, labels) or fit('train.csv').")
        texts = [str(text) for text in train]
        if len(texts) != len(labels):
            raise DataError(f"there are {len(texts)} texts but {len(labels)} labels", remedy="Give one label per text.")
        rows = (json.dumps({"text": text, "label": str(label)}, ensure_ascii=False) for text, label in zip(texts, labels, strict=True))
        path = folder / "inputs" / "train.jsonl"
        write_text(path, "\n".join(rows) + "\n")
        return str(path)
