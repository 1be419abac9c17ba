"""TaskLM: fit, predict, score, save and load for every kind of task, following scikit-learn's
conventions.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin

from tasklm.api.scoring import require_as_many, score_of_classes, score_of_labels
from tasklm.bill.record import read_bill
from tasklm.errors import RunError
from tasklm.evaluate.scores import Scores, of_this_recipe
from tasklm.evaluate.scores import from_dict as scores_from
from tasklm.images.entrance import flow_of
from tasklm.images.model import ImagePredictor, is_image_model
from tasklm.notebook import Report, ShownBill, ShownExplanation, model_html, settings_html
from tasklm.pipeline.given_texts import data_keys
from tasklm.recipe.toml import load as load_recipe
from tasklm.run_folder import MODEL, REPORT, SCORES, described_by, find_run, recipe_of
from tasklm.serve.all_tasks import AllTasks
from tasklm.serve.columns import columns_for
from tasklm.serve.inputs import Input, example_from
from tasklm.serve.predictor import Columns, Predictor
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json, require_own, write_bytes
from tasklm.storage.safe_reading import whole_text
from tasklm.storage.scratch import Scratch
from tasklm.tasks.base import Answer
from tasklm.tasks.several import ALL, members_of
from tasklm.tracking import Tracker
from tasklm.updating.record import UpdateResult

Texts = str | Path | Sequence[str | Path]  # files, folders or globs of raw text
Labels = Sequence[Any] | NDArray[Any]
# the last three are images: files, their bytes, or pixels
Inputs = Iterable[Input | Path | bytes | NDArray[Any]]

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


class TaskLM(Estimator):
    """A task-specific text model, trained from scratch on a labelled data set and the part of a
    corpus that matters for it.

    The task may be of any kind; for classification this is a regular scikit-learn classifier.
    Inputs to predict are texts, pairs of texts (tuples), or rows: mappings with the columns of the
    training data. For a model of images they are files, their bytes, or arrays of pixels.

    corpus: files, folders or globs of raw text; may also be given to `fit`.
    minutes: wall time for a whole `fit`.
    recipe: path of a recipe, which the other settings override.
    settings: recipe keys by dotted name, such as {"select.k": 500}.
    out: run folder; by default a temporary one, deleted with this object.
    verbose: show messages and progress on standard error; 2 also shows the run's full log.txt.

    After `fit` or `load` there are `classes_` (the labels; for several tasks a dict from task to
    labels), `scores_` (the score table and its verdict; None for a model saved without its run),
    `model_folder_` and, after `fit`, `folder_` (the run).
    """

    classes_: NDArray[Any] | dict[str, NDArray[Any]]
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
        train: str | Path | Mapping[str, str | Path] | Iterable[str] | Iterable[Sequence[str]],
        labels: Labels | None = None,
        *,
        corpus: Texts | None = None,
        dev: str | Path | None = None,
        test: str | Path | None = None,
    ) -> Self:
        """Trains on a labelled file of any kind (or a folder of images), on a mapping from tasks to
        files, or on texts (or pairs of texts) and their labels; returns itself.

        Unless settings name data.kind, labels that are lists mean label sets, fractional numbers
        mean scores, and everything else means classes. A mapping for several tasks: {"rte": "RTE/",
        "sst2": "SST-2/"}.
        """
        # not at the top: a linear model predicts without PyTorch
        from tasklm.pipeline.flow import held

        folder = Path(self.out) if self.out else self._temporary()
        overrides: dict[str, Any] = dict(self.settings or {})
        require_own(folder)
        with held(folder):
            overrides |= data_keys(train, labels, {"dev": dev, "test": test}, folder)
        given = corpus if corpus is not None else self.corpus
        if given is not None:
            overrides["data.corpus"] = (
                [str(given)] if isinstance(given, str | Path) else [str(one) for one in given]
            )
        if self.minutes is not None:
            overrides["budget.minutes"] = self.minutes
        recipe = load_recipe(Path(self.recipe) if self.recipe else None, overrides)
        self.scores_ = flow_of(recipe).fit(recipe, folder, self._tracker())
        self.folder_ = folder
        self._use(folder / MODEL, columns_for(recipe))
        if labels is not None:
            original = {whole_text(str(label)): label for label in labels}
            self.classes_ = np.array(
                [original.get(label, label) for label in self.predictor_.labels]
            )
        return self

    def update(
        self,
        train: str | Path | None = None,
        *,
        corpus: Texts | None = None,
        dev: str | Path | None = None,
        test: str | Path | None = None,
    ) -> UpdateResult:
        """Teaches the model of this run new examples, classes or text, and continues with the model
        that is then in model/; returns the scores before and after.
        """
        from tasklm.api.verbs import update

        self._whole()
        run = find_run(self.model_folder_)
        if run is None:
            raise RunError("a copy of a model cannot be updated. Load its run: TaskLM.load(RUN)")
        result = update(run, train=train, corpus=corpus, dev=dev, test=test)
        self._use(run / MODEL, self.predictor_.data)
        return result

    def predict(self, inputs: Inputs, task: str = "") -> NDArray[Any] | list[Any]:
        """The prediction for each input: an array of classes; for other kinds a list.

        `task`: the name of the task, for a model of several; here and in the other methods.

        Each item is a float (regress), a list of labels (multilabel), the number of an option from
        0 (choice), the tags of the words (tag), the text of an answer, "" for none (span), or the
        (head, relation) of each word (parse).
        """
        predictor = self._trained(task)
        if predictor.task.classifies:
            best = self.predict_proba(inputs, task).argmax(axis=1)
            return np.asarray(self._classes(task)[best])
        labels = [
            predictor.task.label_of(answer) for answer in predictor.answers(list[Any](inputs))
        ]
        return [list(label) if isinstance(label, tuple) else label for label in labels]

    def answers(self, inputs: Inputs, task: str = "") -> list[Answer]:
        """The full output of the model for each input, as `tasklm predict` prints it.

        `task="all"`: the outputs of every task that takes the input.
        """
        given: Iterable[Any] = inputs
        if task == ALL:
            tasks = AllTasks(self._whole())
            return list(tasks.answers(tasks.examples(given)))
        predictor = self._trained(task)
        if isinstance(predictor, ImagePredictor):
            return predictor.answers(list[Any](inputs))
        examples = (example_from(one, predictor.task, predictor.data) for one in given)
        return [{"text": example.text, **answer} for example, answer in predictor.stream(examples)]

    def predict_sets(
        self, inputs: Iterable[Input], coverage: float = 0.95, task: str = ""
    ) -> list[dict[str, Any]]:
        """For each input, a set that contains the right label in a share `coverage` of cases, as
        `tasklm predict --coverage` prints it: {"text", "labels": probability by name}, or {"text",
        "unknown": the reason}.

        Choices have "options", scores a "score" with its "interval".
        """
        predictor = self._trained(task)
        examples = (example_from(one, predictor.task, predictor.data) for one in inputs)
        rows = predictor.stream_sets(examples, coverage)
        return [{"text": example.text, **row} for example, row in rows]

    def predict_proba(self, inputs: Inputs, task: str = "") -> NDArray[np.float64]:
        """The probability of each class (columns in the order of `classes_`) for each input."""
        predictor = self._trained(task)
        if not predictor.task.classifies:
            problem = (
                f"predict_proba is for classes, and this model is of kind {predictor.task.kind}"
            )
            raise RunError(f"{problem}. Call predict for labels, or answers for the full output.")
        answers = predictor.answers(list[Any](inputs))
        rows = [
            [answer["probabilities"][label] for label in predictor.labels] for answer in answers
        ]
        return np.array(rows, np.float64).reshape(len(rows), len(predictor.labels))

    def score(
        self, inputs: Inputs, labels: Labels, metric: str | None = None, task: str = ""
    ) -> float:
        """A metric of the predictions: by default accuracy for classes, else the kind's first
        metric.

        Labels have the form that `predict` returns. If a question has several right answers, give a
        list.
        """
        own, given = self._trained(task).task, list(inputs)
        require_as_many(given, labels)
        if not own.classifies:
            return score_of_labels(own, metric, labels, lambda: self.predict(given, task))
        classes = self._classes(task).tolist()
        return score_of_classes(
            own, metric, labels, classes, lambda: self.predict_proba(given, task)
        )

    def explain(self, text: Input, top: int = 5, task: str = "") -> ShownExplanation:
        """The prediction for an input, with the training examples and selected passages that
        support it and speak against it.

        A notebook shows it as tables, `print` as lines.
        """
        from tasklm.serve.explainer import Explainer

        predictor = self._trained(task)
        _ = predictor.model  # an ensemble is refused
        if not hasattr(self, "explainer_"):
            self.explainer_ = Explainer(self.model_folder_)
        explainer = self.explainer_.of(task) if task else self.explainer_
        example = example_from(text, predictor.task, predictor.data)
        return ShownExplanation.of(explainer.explain_example(example, top))

    def label_next(
        self, texts: str | Path | Iterable[Input], n: int = 100, task: str = ""
    ) -> list[dict[str, Any]]:
        """The texts most worth labelling, best first, as rows with the columns of the training
        data, the label None, `doubt` and `reason`.

        `texts`: a file or folder, which may be larger than memory, or texts, pairs or rows.
        """
        from tasklm.labelling.sheet import row_of
        from tasklm.labelling.suggesting import Labeller

        self._whole()
        labeller, tracker = Labeller.of(self.model_folder_, task), self._tracker()
        if isinstance(texts, str | Path):
            suggestions = labeller.from_pile(labeller.pile([str(texts)]), n, tracker)
        else:
            suggestions = labeller.from_texts(texts, n, tracker)
        return [row_of(one, suggestions.columns) for one in suggestions.suggestions]

    def report(self, to: str | Path | None = None) -> Report:
        """The path of the run's report, or of its copy written to `to`; a notebook shows it as a
        page.
        """
        self._whole()
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
        from tasklm.export.publishing import publish_bill
        from tasklm.export.source import new_folder

        if not hasattr(self, "model_folder_"):
            raise RunError("this TaskLM has not been trained. Call fit first.")
        if Path(folder).exists():
            raise RunError(f"{folder} already exists. Choose a new folder.")
        require_whole(self.model_folder_, "config.json")
        with new_folder(Path(folder)) as copy:
            shutil.copytree(self.model_folder_, copy, dirs_exist_ok=True)
            publish_bill(self.model_folder_, copy)

    def bill(self) -> ShownBill:
        """What the model has read: every source with its hash, its licence and its share.

        A notebook shows it as a table, `print` as lines.
        """
        self._whole()
        return ShownBill(read_bill(self.model_folder_))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A trained model from a run folder, from the folder `model` or `ensemble` in it, or from
        what `save` wrote.
        """
        model, inside = cls(), Path(folder)
        if not (inside / "config.json").exists() and (inside / MODEL).is_dir():
            inside = inside / MODEL
        run = find_run(inside)
        run = None if run is None else described_by(run)
        model._use(inside, columns_for(None if run is None else recipe_of(run)))
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
        task = self.predictor_.task
        own = ", ".join(f"{member.name}: {member.task.kind}" for member in members_of(task))
        return model_html(
            name,
            f"{task.kind} ({own})" if own else task.kind,
            self.predictor_.labels,
            self.scores_,
            self.model_folder_,
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {
            "text/plain": repr(self),
            "text/html": self._repr_html_(),
        }  # scikit-learn has its own, which notebooks would prefer

    def _whole(self) -> Predictor:
        if not hasattr(self, "predictor_"):
            raise RunError("this TaskLM has not been trained. Call fit first, or TaskLM.load.")
        return self.predictor_

    def _trained(self, task: str) -> Predictor:
        """The predictor, or that of the named one of several tasks."""
        whole = self._whole()
        return whole.of(task) if task or members_of(whole.task) else whole

    def _classes(self, task: str) -> NDArray[Any]:
        return self.classes_[task] if isinstance(self.classes_, dict) else self.classes_

    def _use(self, folder: Path, data: Columns) -> None:
        images = is_image_model(folder)
        self.predictor_ = ImagePredictor(folder) if images else Predictor(folder, data=data)
        self.model_folder_ = folder
        self.__dict__.pop("explainer_", None)  # it belongs to the previous model
        self.classes_ = np.array(self.predictor_.labels)
        if members := members_of(self.predictor_.task):
            self.classes_ = {member.name: np.array(member.task.labels) for member in members}

    def _tracker(self) -> Tracker:
        """What shows messages and progress, if they are wanted."""
        return Tracker(Console(stderr=True) if self.verbose else None, verbose=self.verbose > 1)

    def _temporary(self) -> Path:
        self._scratch = Scratch()  # deleted with this object
        return self._scratch.folder / "run"
