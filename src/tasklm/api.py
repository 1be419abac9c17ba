"""TaskLM: fit, predict, score, save and load for every kind of task, following scikit-learn's
conventions.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin

from tasklm.errors import DataError, RunError
from tasklm.evaluate.scores import Scores, of_this_recipe
from tasklm.evaluate.scores import from_dict as scores_from
from tasklm.export.source import new_folder
from tasklm.forecasting.forecast import SECONDS, Forecast
from tasklm.forecasting.forecast import forecast as forecast_recipe
from tasklm.notebook import Report, ShownExplanation, model_html, settings_html
from tasklm.pipeline.flow import fit as run_pipeline
from tasklm.pipeline.flow import held
from tasklm.pipeline.teachers import student_of
from tasklm.recipe.data_sections import Data
from tasklm.recipe.toml import load as load_recipe
from tasklm.run_folder import MODEL, REPORT, SCORES, find_run, recipe_of
from tasklm.serve.explainer import Explainer
from tasklm.serve.inputs import Input, example_from
from tasklm.serve.predictor import Predictor
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json, require_own, write_bytes, write_text
from tasklm.storage.safe_reading import whole_text
from tasklm.tasks.base import Answer, score
from tasklm.tracking import SILENT, Tracker

Texts = str | Path | Sequence[str | Path]  # files, folders or globs of raw text
Labels = Sequence[Any] | NDArray[Any]

if TYPE_CHECKING:  # scikit-learn is untyped: without this, mypy would accept any method of a TaskLM

    class Estimator:
        """What scikit-learn adds to a model."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The settings given to the constructor."""
            ...

        def set_params(self, **settings: Any) -> Self:
            """Changes settings; returns itself."""
            ...

else:

    class Estimator(ClassifierMixin, BaseEstimator):
        """What scikit-learn adds to a model."""


def forecast(
    train: str | Path,
    *,
    corpus: Texts,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    seconds: float = SECONDS,
    settings: Mapping[str, Any] | None = None,
) -> Forecast:
    """Forecasts what a labelled file will score on test, before anything is trained; `print` shows
    it as a table.

    The labels of test are not used: its texts are removed from train, and its size determines how
    much a score may vary. `settings` are recipe keys by dotted name, such as {"evaluate.metric":
    "accuracy"}.
    """
    overrides: dict[str, Any] = {**(settings or {}), "data.train": str(train)}
    overrides["data.corpus"] = (
        [str(corpus)] if isinstance(corpus, str | Path) else [str(one) for one in corpus]
    )
    overrides |= {
        key: str(value) for key, value in (("data.dev", dev), ("data.test", test)) if value
    }
    return forecast_recipe(load_recipe(None, overrides), seconds)


def distill(
    teachers: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
) -> TaskLM:
    """Trains a model that finished runs teach, in the folder `out`; returns it.

    The recipe is that of the first run, with `settings` by dotted name over it, such as
    {"model.size": "mini"}.
    """
    given = [teachers] if isinstance(teachers, str | Path) else teachers
    require_own(Path(out))
    run_pipeline(student_of([str(one) for one in given], settings or {}), Path(out), SILENT)
    return TaskLM.load(out)


def _row(text: Any, label: Any) -> dict[str, Any]:
    """A row of training data: one text or a pair, and one label or several."""
    if isinstance(text, Mapping):
        raise DataError(
            "fit accepts rows with columns only from a file",
            remedy="Write them to a file, such as train.jsonl, and call fit with it.",
        )
    pair = isinstance(text, tuple | list | np.ndarray)
    if pair and len(text) != 2:
        raise DataError(
            f"a pair has two texts, not {len(text)}",
            remedy="Give pairs such as (one, other), or single texts.",
        )
    several = isinstance(label, tuple | list | set | np.ndarray)
    texts = {"text_a": str(text[0]), "text_b": str(text[1])} if pair else {"text": str(text)}
    row = {**texts, "label": sorted(map(str, label)) if several else str(label)}
    return {
        name: [whole_text(part) for part in value] if isinstance(value, list) else whole_text(value)
        for name, value in row.items()
    }


class TaskLM(Estimator):
    """A task-specific text model, trained from scratch on a labelled data set and the part of a
    corpus that matters for it.

    The task may be of any kind; for classification this is a regular scikit-learn classifier.
    Inputs to predict are texts, pairs of texts (tuples), or rows: mappings with the columns of the
    training data.

    corpus: files, folders or globs of raw text; may also be given to `fit`.
    minutes: wall time for a whole `fit`.
    recipe: path of a recipe, which the other settings override.
    settings: recipe keys by dotted name, such as {"select.k": 500}.
    out: run folder; by default a temporary one, deleted with this object.
    verbose: show messages and progress on standard error; 2 also shows the run's full log.txt.

    After `fit` or `load` there are `classes_` (the labels), `scores_` (the score table and its
    verdict; None for a model saved without its run), `model_folder_` and, after `fit`, `folder_`
    (the run).
    """

    classes_: NDArray[Any]
    scores_: Scores | None
    folder_: Path
    model_folder_: Path
    predictor_: Predictor

    def __init__(
        self,
        corpus: Texts | None = None,
        minutes: float | None = None,
        recipe: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.corpus, self.minutes, self.recipe, self.settings = corpus, minutes, recipe, settings
        self.out, self.verbose = out, verbose

    def fit(
        self,
        train: str | Path | Iterable[str] | Iterable[Sequence[str]],
        labels: Labels | None = None,
        *,
        corpus: Texts | None = None,
        dev: str | Path | None = None,
        test: str | Path | None = None,
    ) -> Self:
        """Trains on a labelled file of any kind, or on texts (or pairs of texts) and their labels;
        returns itself.

        Unless settings name data.kind, lists mean several labels, fractional numbers mean scores,
        and everything else means classes.
        """
        folder = Path(self.out) if self.out else self._temporary()
        overrides: dict[str, Any] = dict(self.settings or {})
        require_own(folder)
        with held(folder):
            overrides["data.train"] = self._train_file(train, labels, folder)
        given = corpus if corpus is not None else self.corpus
        if given is not None:
            overrides["data.corpus"] = (
                [str(given)] if isinstance(given, str | Path) else [str(one) for one in given]
            )
        overrides |= {
            key: str(value) for key, value in (("data.dev", dev), ("data.test", test)) if value
        }
        if self.minutes is not None:
            overrides["budget.minutes"] = self.minutes
        recipe = load_recipe(Path(self.recipe) if self.recipe else None, overrides)
        tracker = Tracker(Console(stderr=True) if self.verbose else None, verbose=self.verbose > 1)
        self.scores_ = run_pipeline(recipe, folder, tracker)
        self.folder_ = folder
        self._use(folder / MODEL, recipe.data)
        original = {whole_text(str(label)): label for label in labels} if labels is not None else {}
        self.classes_ = np.array([original.get(label, label) for label in self.predictor_.labels])
        return self

    def predict(self, inputs: Iterable[Input]) -> NDArray[Any] | list[Any]:
        """The prediction for each input: an array of classes; for other kinds a list.

        Each item is a float (regress), a list of labels (multilabel), the number of an option from
        0 (choice), the tags of the words (tag), the text of an answer, "" for none (span), or the
        (head, relation) of each word (parse).
        """
        predictor = self._trained()
        if predictor.task.classifies:
            return np.asarray(self.classes_[self.predict_proba(inputs).argmax(axis=1)])
        labels = [predictor.task.label_of(answer) for answer in predictor.answers(list(inputs))]
        return [list(label) if isinstance(label, tuple) else label for label in labels]

    def answers(self, inputs: Iterable[Input]) -> list[Answer]:
        """The full output of the model for each input, as `tasklm predict` prints it."""
        predictor = self._trained()
        examples = (example_from(one, predictor.task, predictor.data) for one in inputs)
        return [{"text": example.text, **answer} for example, answer in predictor.stream(examples)]

    def predict_proba(self, inputs: Iterable[Input]) -> NDArray[np.float64]:
        """The probability of each class (columns in the order of `classes_`) for each input."""
        predictor = self._trained()
        if not predictor.task.classifies:
            problem = (
                f"predict_proba is for classes, and this model is of kind {predictor.task.kind}"
            )
            raise RunError(f"{problem}. Call predict for labels, or answers for the full output.")
        answers = predictor.answers(list(inputs))
        rows = [
            [answer["probabilities"][label] for label in predictor.labels] for answer in answers
        ]
        return np.array(rows, np.float64).reshape(len(rows), len(predictor.labels))

    def score(self, inputs: Iterable[Input], labels: Labels, metric: str | None = None) -> float:
        """A metric of the predictions: by default accuracy for classes, else the kind's first
        metric.

        Labels have the form that `predict` returns; a question may have several right answers, as a
        list.
        """
        task, given = self._trained().task, list(inputs)
        if len(given) != len(labels):
            raise DataError(
                f"there are {len(given)} inputs but {len(labels)} labels",
                remedy="Give one label per input.",
            )
        if not task.classifies:
            try:
                return score(
                    task.metric(metric or task.metrics[0]), list(labels), list(self.predict(given))
                )
            except ValueError as error:  # such as tags for more words than the sentence has
                raise DataError(
                    f"the labels do not fit the inputs: {error}",
                    remedy="Give them in the form that predict returns.",
                ) from None
        number = {label: i for i, label in enumerate(self.classes_.tolist())}
        strange = [label for label in labels if label not in number]
        if strange:
            raise DataError(
                f"the label {strange[0]!r} does not occur in train", remedy="Leave such rows out."
            )
        best = self.predict_proba(given).argmax(axis=1)
        return score(
            task.metric(metric or "accuracy"),
            [task.labels[number[label]] for label in labels],
            [task.labels[i] for i in best],
        )

    def explain(self, text: Input, top: int = 5) -> ShownExplanation:
        """The prediction for an input, with the training examples and selected passages that
        support it and speak against it.

        A notebook shows it as tables, `print` as lines.
        """
        predictor = self._trained()
        _ = predictor.model  # an ensemble is refused
        if not hasattr(self, "explainer_"):
            self.explainer_ = Explainer(self.model_folder_)
        example = example_from(text, predictor.task, predictor.data)
        return ShownExplanation.of(self.explainer_.explain_example(example, top))

    def report(self, to: str | Path | None = None) -> Report:
        """The path of the run's report, or of its copy written to `to`; a notebook shows it as a
        page.
        """
        self._trained()
        run = find_run(self.model_folder_)
        if run is None or not (path := run / REPORT).is_file():
            raise RunError(
                f"there is no report beside {self.model_folder_}: saving a model does not copy "
                "it. Load the run itself, such as TaskLM.load('runs/first'), or write one: "
                "tasklm report runs/first"
            )
        if to is None:
            return Report(path)
        write_bytes(Path(to), path.read_bytes())
        return Report(Path(to))

    def save(self, folder: str | Path) -> None:
        """Copies the trained model to a new folder, from which `load` and
        `tasklm predict` read it.
        """
        if not hasattr(self, "model_folder_"):
            raise RunError("this TaskLM has not been trained. Call fit first.")
        if Path(folder).exists():
            raise RunError(f"{folder} already exists. Choose a new folder.")
        require_whole(self.model_folder_, "config.json")
        with new_folder(Path(folder)) as copy:
            shutil.copytree(self.model_folder_, copy, dirs_exist_ok=True)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A trained model from a run folder, from the folder `model` or `ensemble` in it, or from
        what `save` wrote.
        """
        model, inside = cls(), Path(folder)
        if not (inside / "config.json").exists() and (inside / MODEL).is_dir():
            inside = inside / MODEL
        run = find_run(inside)
        model._use(inside, None if run is None else recipe_of(run).data)
        model.classes_ = np.array(model.predictor_.labels)
        model.scores_ = None
        if run is not None and (run / SCORES).exists():
            model.scores_ = scores_from(read_json(run / SCORES))
            if not of_this_recipe(model.scores_, run):
                problem = "come from an earlier recipe than the one there"
                warnings.warn(
                    f"model, scores and report in {run} {problem}. "
                    f"Finish the run: tasklm report {run}",
                    stacklevel=2,
                )
        return model

    def _repr_html_(self) -> str:
        name = type(self).__name__
        if not hasattr(self, "predictor_"):
            return settings_html(name, self.get_params(deep=False))
        return model_html(
            name,
            self.predictor_.task.kind,
            self.predictor_.labels,
            self.scores_,
            self.model_folder_,
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {
            "text/plain": repr(self),
            "text/html": self._repr_html_(),
        }  # scikit-learn has its own, which notebooks would prefer

    def _trained(self) -> Predictor:
        if not hasattr(self, "predictor_"):
            raise RunError("this TaskLM has not been trained. Call fit first, or TaskLM.load.")
        return self.predictor_

    def _use(self, folder: Path, data: Data | None) -> None:
        self.predictor_, self.model_folder_ = Predictor(folder, data=data), folder
        self.__dict__.pop("explainer_", None)  # it belongs to the previous model

    def _temporary(self) -> Path:
        self._keeps_folder = tempfile.TemporaryDirectory(
            prefix="tasklm-"
        )  # deleted with this object
        return Path(self._keeps_folder.name) / "run"

    def _train_file(self, train: Any, labels: Labels | None, folder: Path) -> str:
        if isinstance(train, (str, Path)) and labels is None:
            return str(train)
        if labels is None:
            raise DataError(
                "there are texts but no labels",
                remedy="Call fit(texts, labels) or fit('train.csv').",
            )
        texts = list(train)
        if len(texts) != len(labels):
            raise DataError(
                f"there are {len(texts)} texts but {len(labels)} labels",
                remedy="Give one label per text.",
            )
        rows = (
            json.dumps(_row(text, label), ensure_ascii=False)
            for text, label in zip(texts, labels, strict=True)
        )
        path = folder / "inputs" / "train.jsonl"
        write_text(path, "\n".join(rows) + "\n")
        return str(path)
