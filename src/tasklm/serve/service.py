"""The HTTP service of a trained model: its paths and their responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from tasklm.errors import DataError, RunError
from tasklm.serve.all_tasks import AllTasks, Examples
from tasklm.serve.application import STYLE, Application, Settings
from tasklm.serve.batching import Batcher, BatchLimits
from tasklm.serve.bodies import explain_input, predict_inputs
from tasklm.serve.descriptions import (
    PROBLEMS,
    all_operation,
    explain_operation,
    predict_operation,
    task_operation,
)
from tasklm.serve.explainer import Explainer, TooSlow
from tasklm.serve.guard import RETRY_SECONDS, Guard, Lifecycle
from tasklm.serve.inputs import example_from
from tasklm.serve.limits import Refused, read_body
from tasklm.serve.predictor import Predictor
from tasklm.serve.served_tasks import (
    EveryTask,
    ServedTask,
    about_tasks,
    answers_by_task,
    examples_from,
    no_such_task,
    problem_and_remedy,
    served_tasks,
)
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example
from tasklm.tasks.several import members_of

Endpoint = Callable[[Request], Awaitable[Response]]
MOST_TOGETHER = 64  # inputs per worker at a time
PAGE = {
    "/": ("tasklm.serve", "page.html", "text/html"),
    "/page.js": ("tasklm.serve", "page.js", "text/javascript"),
    "/page.css": STYLE,
}
PREDICT, EXPLAIN, TASK = "/predict", "/explain", "/task"


@dataclass(frozen=True)
class Question:
    """A request for an explanation."""

    example: Example
    explainer: Explainer
    top: int  # texts on each side
    deadline: float  # of the monotonic clock


class Endpoints(Application):
    """The model with its queue, and the functions that answer requests."""

    def __init__(
        self,
        predictor: Predictor,
        explainer: Explainer | None,
        settings: Settings,
        lifecycle: Lifecycle,
    ) -> None:
        super().__init__(predictor.task.kind, settings, lifecycle)
        self.predictor = predictor
        self.tasks = served_tasks(predictor, explainer)
        self.every = [EveryTask(AllTasks(predictor))] if members_of(predictor.task) else []
        self.limits = settings.limits
        self.metrics.watch(self._waiting)
        self._queue: Batcher[Examples, dict[str, Answer]] | None = None
        self._reasons: Batcher[Question, dict[str, Any]] | None = None

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Keeps the worker threads while the application runs; they finish accepted requests."""
        predictions = BatchLimits(
            workers=self.settings.workers,
            most=MOST_TOGETHER,
            window=self.settings.window,
            waiting=self.limits.waiting,
        )
        self._queue = Batcher(
            self._answered, predictions, counted=self.metrics.batch, started=_prepare_thread
        )
        explanations = BatchLimits(workers=1, most=1, window=0, waiting=self.limits.explanations)
        self._reasons = Batcher(self._explained, explanations, started=_prepare_thread)
        try:
            yield
        finally:
            await self._queue.close()
            await self._reasons.close()

    def predicts(self, task: ServedTask | EveryTask) -> Endpoint:
        """What answers POST /predict, /predict/NAME or /predict/all."""
        forms = task.forms

        async def predict(request: Request) -> Response:
            body = await read_body(request, self.limits)
            inputs, coverage = predict_inputs(body, self.limits, forms, task.gives_sets)
            examples = [
                examples_from(task, one, f"inputs[{place}]") for place, one in enumerate(inputs)
            ]
            assert self._queue is not None  # the application is running
            answers = await self._queue.answers(examples)
            if coverage is not None:
                return JSONResponse({"answers": task.sets(examples, answers, coverage)})
            return JSONResponse({"answers": [task.answer(one) for one in answers]})

        return predict

    def explains(self, task: ServedTask) -> Endpoint:
        """What answers POST /explain, or /explain/NAME."""
        forms = task.forms

        async def explain(request: Request) -> Response:
            body = await read_body(request, self.limits)
            given, top = explain_input(body, self.limits, forms)
            if task.explainer is None:
                raise Refused(404, PROBLEMS[404])
            example = example_from(given, task.task, task.data)
            return await self._explanation(example, task.explainer, top)

        return explain

    async def _explanation(self, example: Example, explainer: Explainer, top: int) -> Response:
        assert self._reasons is not None
        seconds = self.limits.explain_seconds
        question = Question(example, explainer, top, time.monotonic() + seconds)
        try:
            async with asyncio.timeout(seconds):
                (explanation,) = await self._reasons.answers([question])
        except (TimeoutError, TooSlow):
            problem = f"The explanation was not ready within {seconds:g} seconds."
            reason = f"{problem} Try again when the service is less busy."
            raise Refused(503, reason, {"Retry-After": str(RETRY_SECONDS)}) from None
        return JSONResponse(explanation)

    def names_tasks(self, verb: str) -> Endpoint:
        """What answers a request for none of several tasks: their addresses."""

        async def nothing(request: Request) -> Response:
            raise no_such_task(self.tasks, verb)

        return nothing

    async def task(self) -> Response:
        """Answers GET /task."""
        return JSONResponse(about_tasks(self.tasks, self.predictor.task.kind, self.limits))

    def _waiting(self) -> int:
        if self._queue is None:
            return 0
        return self._queue.waiting

    def _answered(self, batch: Sequence[Examples]) -> list[dict[str, Answer]]:
        """The answers of a batch, computed in parts of similar length."""
        order = sorted(range(len(batch)), key=lambda number: _characters(batch[number]))
        answers: dict[int, dict[str, Answer]] = {}
        for start in range(0, len(order), self.settings.alike):
            numbers = order[start : start + self.settings.alike]
            part = answers_by_task(self.predictor, [batch[number] for number in numbers])
            answers.update(zip(numbers, part, strict=True))
        return [answers[number] for number in range(len(batch))]

    def _explained(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """The explanations of some inputs; training files appear only by name."""
        explanations = []
        for question in questions:
            explain = question.explainer.explain_example
            try:
                reasons = explain(question.example, question.top, question.deadline)
            except RunError as error:  # of more than one row
                raise Refused(422, str(error)) from None
            values = asdict(reasons)
            sides = values["examples"]
            for attribution in [*sides["supporting"], *sides["opposing"]]:
                attribution["where"] = attribution["where"].rsplit("/", 1)[-1]
            explanations.append(values)
        return explanations


def create_app(
    predictor: Predictor,
    explainer: Explainer | None = None,
    settings: Settings | None = None,
    lifecycle: Lifecycle | None = None,
) -> Guard:
    """The application: the endpoints behind the guard."""
    settings, lifecycle = settings or Settings(), lifecycle or Lifecycle()
    ends = Endpoints(predictor, explainer, settings, lifecycle)
    add_tasks(ends)
    ends.add(TASK, ends.task, "GET", task_operation())
    own_paths = [task.path(verb) for task in ends.tasks for verb in (PREDICT, EXPLAIN)]
    own_paths += [every.path(PREDICT) for every in ends.every]
    return ends.guarded(PAGE, (PREDICT, EXPLAIN, TASK, *own_paths), _not_data, "inputs")


def add_tasks(ends: Endpoints) -> None:
    """Adds the addresses of the task, or of each of several; others then tell theirs."""
    for task in ends.tasks:
        for verb, answer, operation in (
            (PREDICT, ends.predicts(task), predict_operation),
            (EXPLAIN, ends.explains(task), explain_operation),
        ):
            described = operation(ends.limits, task.forms)
            if task.name:
                described["summary"] += f": {task.name}"
            ends.add(task.path(verb), answer, "POST", described)
    if not ends.tasks[0].name:
        return
    for every in ends.every:
        operation_of_all = all_operation(ends.limits, every.forms)
        ends.add(every.path(PREDICT), ends.predicts(every), "POST", operation_of_all)
    for verb in (PREDICT, EXPLAIN):
        for path in (verb, f"{verb}/{{name}}"):
            ends.add(path, ends.names_tasks(verb), "POST", {"include_in_schema": False})


def _characters(examples: Examples) -> int:
    """The characters of an input, as the task that reads most of it does."""
    return max(sum(map(len, one.texts)) for one in examples.values())


def _prepare_thread() -> None:
    torch.set_flush_denormal(True)  # applies to one thread only; see device/machine.py


def _not_data(error: DataError) -> JSONResponse:
    return JSONResponse({"detail": problem_and_remedy(error)}, 422)
