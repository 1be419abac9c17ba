"""The tasks of a service: one, or several with an address each and one for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasklm.errors import DataError, RecipeError, RunError
from tasklm.recipe.data_sections import Data
from tasklm.serve.all_tasks import AllTasks, Examples
from tasklm.serve.bodies import Forms, forms_of
from tasklm.serve.descriptions import what_it_takes
from tasklm.serve.explainer import Explainer
from tasklm.serve.inputs import Input, example_from
from tasklm.serve.limits import Limits, Refused
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import Answer, Task
from tasklm.tasks.several import ALL, members_of


@dataclass(frozen=True)
class ServedTask:
    """A task, what its inputs may be, and what explains its answers, if anything does."""

    name: str  # of one of several; else ""
    task: Task
    data: Data
    explainer: Explainer | None
    predictor: Predictor  # of this task alone
    gives_sets: ClassVar[bool] = True  # if it is calibrated; otherwise it says why not

    @property
    def forms(self) -> Forms:
        """The forms that an input may have."""
        return forms_of(self.task)

    def path(self, verb: str) -> str:
        """The address of what is asked of the task, such as /predict or /predict/NAME."""
        return f"{verb}/{self.name}" if self.name else verb

    def examples(self, given: Input) -> Examples:
        """The example of an input, by the name of the task."""
        return {self.name: example_from(given, self.task, self.data)}

    def answer(self, answers: dict[str, Answer]) -> Answer:
        """What is sent of the answers to an input."""
        return answers[self.name]

    def sets(
        self, given: Sequence[Examples], answers: Sequence[dict[str, Answer]], coverage: float
    ) -> list[dict[str, Any]]:
        """The sets that are sent in place of the answers."""
        try:
            return self.predictor.sets_of(
                [one[self.name] for one in given],
                [self.answer(one) for one in answers],
                coverage,
            )
        except RecipeError as error:
            raise Refused(422, f"{'; '.join(error.problems)}.") from None
        except RunError as error:  # without the folder's place
            raise Refused(422, f"{error}".replace(f"{self.predictor.folder}", "model")) from None

    def about(self, limits: Limits) -> dict[str, Any]:
        """What a page needs to know to build a request."""
        texts = None
        if self.explainer is not None:
            texts = len(self.explainer.examples.train[0].texts)
        explains, calibrated = self.explainer is not None, self.predictor.is_calibrated
        return what_it_takes(self.task, texts, explains, calibrated, limits)


@dataclass(frozen=True)
class EveryTask:
    """All of several tasks at one address; those that take an input answer it."""

    all_tasks: AllTasks
    name: str = ALL
    gives_sets: ClassVar[bool] = False  # thresholds differ between tasks

    @property
    def forms(self) -> Forms:
        """The forms that any of the tasks takes."""
        own = [forms_of(task) for task in self.all_tasks.tasks.values()]
        texts = any(one.text for one in own)
        needs = "" if texts else own[0].needs
        return Forms(texts, any(one.pair for one in own), needs)

    def path(self, verb: str) -> str:
        """The address of what is asked of all tasks."""
        return f"{verb}/{self.name}"

    def examples(self, given: Input) -> Examples:
        """The examples of an input, by the names of the tasks that take it."""
        return self.all_tasks.example(given)

    def answer(self, answers: dict[str, Answer]) -> Answer:
        """What is sent of the answers to an input."""
        return {"tasks": answers}

    def sets(
        self, given: Sequence[Examples], answers: Sequence[dict[str, Answer]], coverage: float
    ) -> list[dict[str, Any]]:
        """Refused before: see `gives_sets`."""
        raise AssertionError("the request was not checked")


def examples_from(task: ServedTask | EveryTask, given: Input, where: str) -> Examples:
    """The examples of an input; an error names its position in the request, `where`."""
    try:
        return task.examples(given)
    except DataError as error:
        raise Refused(422, f"{where}: {problem_and_remedy(error)}") from None


def answers_by_task(predictor: Predictor, given: Sequence[Examples]) -> list[dict[str, Answer]]:
    """The answers to each input, by the names of the tasks that its examples are of."""
    if members_of(predictor.task):
        return predictor.answers_of_all(given)
    answers = predictor.answers([one[""] for one in given])
    return [{"": answer} for answer in answers]


def served_tasks(predictor: Predictor, explainer: Explainer | None) -> list[ServedTask]:
    """The task of a model, or each of its several."""
    members = members_of(predictor.task)
    if not members:
        return [ServedTask("", predictor.task, predictor.data, explainer, predictor)]
    served = []
    for member in members:
        data = predictor.columns.get(member.name, predictor.data)
        own = None
        if explainer is not None and member.task.together == 1:
            own = explainer.of(member.name)
        alone = predictor.of(member.name)
        served.append(ServedTask(member.name, member.task, data, own, alone))
    return served


def about_tasks(tasks: Sequence[ServedTask], kind: str, limits: Limits) -> dict[str, Any]:
    """The description of a task, or of each of several by its name."""
    if not tasks[0].name:
        return tasks[0].about(limits)
    return {"kind": kind, "tasks": {task.name: task.about(limits) for task in tasks}}


def no_such_task(tasks: Sequence[ServedTask], verb: str) -> Refused:
    """The answer to a request that names none of several tasks."""
    paths = ", ".join(task.path(verb) for task in tasks)
    problem = f"The model has several tasks; send the request to one of: {paths}."
    return Refused(404, f"{problem} Predictions of all of them are at /predict/{ALL}.")


def problem_and_remedy(error: DataError) -> str:
    """What is wrong and the way out, without the name of a file."""
    return f"{error.problem}. {error.remedy}"
