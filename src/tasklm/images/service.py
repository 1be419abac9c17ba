"""The HTTP service of a model of images: its paths and their responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

import tasklm
from tasklm.errors import DataError
from tasklm.images.bodies import FORM, MOST_BODY, RAW, Upload, uploads_in
from tasklm.images.model import ImagePredictor
from tasklm.serve.batching import Batcher, BatchLimits, QueueFull
from tasklm.serve.descriptions import DETAIL, DescribedApp, health_operation, metrics_operation
from tasklm.serve.guard import HEALTH, RETRY_SECONDS, Access, Guard, Lifecycle
from tasklm.serve.limits import Refused
from tasklm.serve.metrics import Metrics
from tasklm.serve.service import Settings

MOST_TOGETHER = 32  # images that are computed at a time
PAGE = {
    "/": ("tasklm.images", "page.html", "text/html"),
    "/page.js": ("tasklm.images", "page.js", "text/javascript"),
    "/page.css": ("tasklm.serve", "page.css", "text/css"),
}
PROBLEMS = {
    400: "An image is truncated, damaged or none, or the body is not valid JSON.",
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of no type that is read.",
    421: "The host name of the request is not allowed.",
    422: "There is no image, there are too many, or one is not in base64.",
    503: "Too many waiting images or open connections; try again after the seconds in Retry-After.",
}
PREDICT, EXPLAIN, TASK = "/predict", "/explain", "/task"
PATHS = (PREDICT, EXPLAIN, TASK, HEALTH, "/metrics", "/openapi.json")


class Endpoints:
    """The model with its queue, and the functions that answer requests."""

    def __init__(self, predictor: ImagePredictor, settings: Settings, lifecycle: Lifecycle) -> None:
        self.predictor, self.settings, self.lifecycle = predictor, settings, lifecycle
        self.limits = replace(settings.limits, size=MOST_BODY)
        self.metrics = Metrics()
        self.metrics.watch(lambda: 0 if self._queue is None else self._queue.waiting)
        self._queue: Batcher[Upload, dict[str, Any]] | None = None

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Keeps the worker threads while the application runs; they finish accepted requests."""
        limits = BatchLimits(
            workers=self.settings.workers,
            most=MOST_TOGETHER,
            window=self.settings.window,
            waiting=self.limits.waiting,
        )
        self._queue = Batcher(self._answered, limits, counted=self.metrics.batch)
        try:
            yield
        finally:
            await self._queue.close()

    async def predict(self, request: Request) -> Response:
        """Answers POST /predict."""
        uploads = await uploads_in(request, self.limits)
        answers = await self._answers(uploads)
        plain = [{name: one[name] for name in ("label", "probabilities")} for one in answers]
        return JSONResponse({"answers": plain})

    async def explain(self, request: Request) -> Response:
        """Answers POST /explain: what each cell of one image adds to its label."""
        uploads = await uploads_in(request, self.limits)
        if len(uploads) > 1:
            raise Refused(422, f"There are {len(uploads):,} images; explain takes one.")
        (answer,) = await self._answers(uploads)
        return JSONResponse(answer)

    async def _answers(self, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
        assert self._queue is not None  # the application is running
        return await self._queue.answers(uploads)

    def _answered(self, batch: Sequence[Upload]) -> list[dict[str, Any]]:
        """The answers of a batch, in a worker's thread."""
        pixels = self.predictor.decoded_uploads([(one.content, one.name) for one in batch])
        return self.predictor.explained(pixels)

    async def task(self) -> Response:
        """Answers GET /task."""
        about = {
            "kind": self.predictor.task.kind,
            "labels": self.predictor.labels,
            "size": self.predictor.size,
            "limits": {"images": self.limits.inputs, "bytes": self.limits.size},
        }
        return JSONResponse(about)

    async def health(self) -> Response:
        """Answers GET /health; 503 while the service stops, so that load balancers send no more."""
        if self.lifecycle.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ok"})

    async def counts(self) -> Response:
        """Answers GET /metrics."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def create_app(predictor: ImagePredictor, settings: Settings, lifecycle: Lifecycle) -> Guard:
    """The application: the endpoints behind the guard."""
    ends = Endpoints(predictor, settings, lifecycle)
    app = DescribedApp(
        title="tasklm: image",
        version=tasklm.__version__,
        lifespan=ends.lifespan,
        docs_url=None,  # FastAPI's pages load scripts from another server
        redoc_url=None,
        redirect_slashes=False,
    )
    app.asks_for_token = settings.token is not None
    for path, answer, method, operation in (
        (PREDICT, ends.predict, "POST", _operation("Predict", "answers")),
        (EXPLAIN, ends.explain, "POST", _operation("Explain", "cells")),
        (TASK, ends.task, "GET", {"summary": "The model"}),
        (HEALTH, ends.health, "GET", health_operation()),
        ("/metrics", ends.counts, "GET", metrics_operation()),
    ):
        app.add_api_route(path, answer, methods=[method], response_model=None, **operation)
    for path, (package, name, kind) in PAGE.items():
        page = _file(package, name, kind)
        app.add_api_route(path, page, methods=["GET"], response_model=None, include_in_schema=False)
    for error, handler in (
        (Refused, _refused),
        (DataError, _not_an_image),
        (QueueFull, _queue_full),
        (Exception, _failed),
    ):
        app.add_exception_handler(error, handler)
    access = Access(
        token=settings.token,
        hosts=settings.hosts,
        known=(*PATHS, *PAGE),
        open_paths=(HEALTH, *PAGE),
    )
    return Guard(app, ends.metrics, lifecycle, access)


def _operation(summary: str, name: str) -> dict[str, Any]:
    """The arguments of FastAPI's route for images."""
    text = {"type": "string", "contentEncoding": "base64"}
    images = {"type": "array", "items": text, "description": "PNG or JPEG files in base64."}
    schema = {"type": "object", "properties": {"images": images}, "required": ["images"]}
    binary: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
    file = {"type": "object", "properties": {"file": binary["schema"]}}
    content = {"application/json": {"schema": schema}, FORM: {"schema": file}}
    content.update(dict.fromkeys(RAW, binary))
    answer = {"type": "object", "properties": {name: {"type": "array"}}, "required": [name]}
    return {
        "summary": summary,
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": {
            200: {"description": "OK", "content": {"application/json": {"schema": answer}}},
            **{status: _problem(text) for status, text in PROBLEMS.items()},
        },
    }


def _problem(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": DETAIL}}}


def _file(package: str, name: str, kind: str) -> Any:
    content = files(package).joinpath(name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": error.reason}, error.status, error.headers)


async def _not_an_image(request: Request, error: Exception) -> Response:
    assert isinstance(error, DataError)
    return JSONResponse({"detail": f"{error.file}: {error.problem}. {error.remedy}"}, 400)


async def _queue_full(request: Request, error: Exception) -> Response:
    detail = "Too many images are waiting. Try again soon."
    return JSONResponse({"detail": detail}, 503, {"Retry-After": str(RETRY_SECONDS)})


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "Internal error; see the terminal of the service."}, 500)
