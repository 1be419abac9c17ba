"""The HTTP service of a trained model: its paths and their responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

import torch
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

import tasklm
from tasklm.errors import DataError, RunError
from tasklm.serve.batching import Batcher, BatchLimits, QueueFull
from tasklm.serve.bodies import explain_input, forms_of, predict_inputs
from tasklm.serve.descriptions import (
    PROBLEMS,
    DescribedApp,
    explain_operation,
    health_operation,
    metrics_operation,
    predict_operation,
    task_operation,
    what_it_takes,
)
from tasklm.serve.explainer import Explainer, TooSlow
from tasklm.serve.guard import HEALTH, RETRY_SECONDS, Access, Guard, Lifecycle
from tasklm.serve.inputs import Input, example_from
from tasklm.serve.limits import Limits, Refused, read_body
from tasklm.serve.metrics import Metrics
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example

MOST_TOGETHER = 64  # inputs per worker at a time
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
PATHS = ("/predict", "/explain", "/task", HEALTH, "/metrics", "/openapi.json")


@dataclass(frozen=True)
class Settings:
    """The settings of the service.

    `window`: seconds in which inputs are collected; `hosts`: accepted host names, none: any.
    `alike`: inputs of similar length that are computed together: rows are padded to the longest,
    and on a CPU more padding costs more than further calls.
    """

    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    window: float = 0.002
    token: str | None = None
    hosts: tuple[str, ...] = ()
    alike: int = 4


@dataclass(frozen=True)
class Question:
    """A request for an explanation."""

    given: Input
    top: int  # texts on each side
    deadline: float  # of the monotonic clock


class Endpoints:
    """The model with its queue, and the functions that answer requests."""

    def __init__(
        self,
        predictor: Predictor,
        explainer: Explainer | None,
        settings: Settings,
        lifecycle: Lifecycle,
    ) -> None:
        self.predictor = predictor
        self.explainer = explainer
        self.settings = settings
        self.lifecycle = lifecycle
        self.limits = settings.limits
        self.forms = forms_of(predictor.task)
        self.metrics = Metrics()
        self.metrics.watch(self._waiting)
        self._queue: Batcher[Example, Answer] | None = None
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

    async def predict(self, request: Request) -> Response:
        """Answers POST /predict."""
        inputs = predict_inputs(await read_body(request, self.limits), self.limits, self.forms)
        examples = [self._example(one, f"inputs[{place}]") for place, one in enumerate(inputs)]
        assert self._queue is not None  # the application is running
        return JSONResponse({"answers": await self._queue.answers(examples)})

    async def explain(self, request: Request) -> Response:
        """Answers POST /explain."""
        given, top = explain_input(await read_body(request, self.limits), self.limits, self.forms)
        if self.explainer is None:
            raise Refused(404, PROBLEMS[404])
        assert self._reasons is not None
        seconds = self.limits.explain_seconds
        question = Question(given, top, time.monotonic() + seconds)
        try:
            async with asyncio.timeout(seconds):
                (explanation,) = await self._reasons.answers([question])
        except (TimeoutError, TooSlow):
            problem = f"The explanation was not ready within {seconds:g} seconds."
            reason = f"{problem} Try again when the service is less busy."
            raise Refused(503, reason, {"Retry-After": str(RETRY_SECONDS)}) from None
        return JSONResponse(explanation)

    async def task(self) -> Response:
        """Answers GET /task."""
        texts = None
        if self.explainer is not None:
            texts = len(self.explainer.examples.train[0].texts)
        return JSONResponse(
            what_it_takes(self.predictor.task, texts, self.explainer is not None, self.limits)
        )

    async def health(self) -> Response:
        """Answers GET /health; 503 while the service stops, so that load balancers send no more."""
        if self.lifecycle.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ok"})

    async def counts(self) -> Response:
        """Answers GET /metrics."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    def _waiting(self) -> int:
        if self._queue is None:
            return 0
        return self._queue.waiting

    def _example(self, given: Input, where: str) -> Example:
        """The example of an input; an error names its position in the request, `where`."""
        try:
            return example_from(given, self.predictor.task, self.predictor.data)
        except DataError as error:
            raise Refused(422, f"{where}: {_problem_and_remedy(error)}") from None

    def _answered(self, batch: Sequence[Example]) -> list[Answer]:
        """The answers of a batch, computed in parts of similar length."""
        order = sorted(range(len(batch)), key=lambda number: sum(map(len, batch[number].texts)))
        answers: dict[int, Answer] = {}
        for start in range(0, len(order), self.settings.alike):
            numbers = order[start : start + self.settings.alike]
            part = self.predictor.answers([batch[number] for number in numbers])
            answers.update(zip(numbers, part, strict=True))
        return [answers[number] for number in range(len(batch))]

    def _explained(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """The explanations of some inputs; training files appear only by name."""
        assert self.explainer is not None
        task, data = self.explainer.examples.task, self.explainer.data
        explanations = []
        for question in questions:
            example = example_from(question.given, task, data)
            try:
                reasons = self.explainer.explain_example(example, question.top, question.deadline)
            except RunError as error:  # of more than one row
                raise Refused(422, str(error)) from None
            values = asdict(reasons)
            sides = values["examples"]
            for attribution in [*sides["pushed_for"], *sides["pushed_against"]]:
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
    app = DescribedApp(
        title=f"tasklm: {predictor.task.kind}",
        version=tasklm.__version__,
        lifespan=ends.lifespan,
        docs_url=None,  # FastAPI's pages load scripts from another server
        redoc_url=None,
        redirect_slashes=False,
    )
    app.asks_for_token = settings.token is not None
    predicts = predict_operation(ends.limits, ends.forms)
    explains = explain_operation(ends.limits, ends.forms)
    app.add_api_route("/predict", ends.predict, methods=["POST"], response_model=None, **predicts)
    app.add_api_route("/explain", ends.explain, methods=["POST"], response_model=None, **explains)
    app.add_api_route("/task", ends.task, methods=["GET"], response_model=None, **task_operation())
    app.add_api_route(
        HEALTH, ends.health, methods=["GET"], response_model=None, **health_operation()
    )
    app.add_api_route(
        "/metrics", ends.counts, methods=["GET"], response_model=None, **metrics_operation()
    )
    for path, (name, kind) in PAGE.items():
        app.add_api_route(
            path, _file(name, kind), methods=["GET"], response_model=None, include_in_schema=False
        )
    for error, answer in (
        (Refused, _refused),
        (DataError, _not_data),
        (QueueFull, _queue_full),
        (Exception, _failed),
    ):
        app.add_exception_handler(error, answer)
    access = Access(
        token=settings.token,
        hosts=settings.hosts,
        known=(*PATHS, *PAGE),
        open_paths=(HEALTH, *PAGE),
    )
    return Guard(app, ends.metrics, lifecycle, access)


def _prepare_thread() -> None:
    torch.set_flush_denormal(True)  # applies to one thread only; see device/machine.py


def _file(name: str, kind: str) -> Any:
    content = files("tasklm.serve").joinpath(name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": error.reason}, error.status, error.headers)


async def _not_data(request: Request, error: Exception) -> Response:
    assert isinstance(error, DataError)
    return JSONResponse({"detail": _problem_and_remedy(error)}, 422)


def _problem_and_remedy(error: DataError) -> str:
    return f"{error.problem}. {error.remedy}"  # without its file


async def _queue_full(request: Request, error: Exception) -> Response:
    return JSONResponse(
        {"detail": "Too many inputs are waiting. Try again soon."},
        503,
        {"Retry-After": str(RETRY_SECONDS)},
    )


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "Internal error; see the terminal of the service."}, 500)
