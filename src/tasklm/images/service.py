"""The HTTP service of a model of images: its paths and their responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from tasklm.errors import DataError
from tasklm.images.bodies import FORM, MOST_BODY, RAW, Upload, uploads_in
from tasklm.images.model import ImagePredictor
from tasklm.serve.application import STYLE, Application, Settings
from tasklm.serve.batching import Batcher, BatchLimits
from tasklm.serve.descriptions import DETAIL
from tasklm.serve.guard import Guard, Lifecycle
from tasklm.serve.limits import Refused

MOST_TOGETHER = 32  # images that are computed at a time
PAGE = {
    "/": ("tasklm.images", "page.html", "text/html"),
    "/page.js": ("tasklm.images", "page.js", "text/javascript"),
    "/page.css": STYLE,
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


class Endpoints(Application):
    """The model with its queue, and the functions that answer requests."""

    def __init__(self, predictor: ImagePredictor, settings: Settings, lifecycle: Lifecycle) -> None:
        super().__init__(predictor.task.kind, settings, lifecycle)
        self.predictor = predictor
        self.limits = replace(settings.limits, size=MOST_BODY)
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


def create_app(predictor: ImagePredictor, settings: Settings, lifecycle: Lifecycle) -> Guard:
    """The application: the endpoints behind the guard."""
    ends = Endpoints(predictor, settings, lifecycle)
    ends.add(PREDICT, ends.predict, "POST", _operation("Predict", "answers"))
    ends.add(EXPLAIN, ends.explain, "POST", _operation("Explain", "cells"))
    ends.add(TASK, ends.task, "GET", {"summary": "The model"})
    return ends.guarded(PAGE, (PREDICT, EXPLAIN, TASK), _not_an_image, "images")


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


def _not_an_image(error: DataError) -> JSONResponse:
    return JSONResponse({"detail": f"{error.file}: {error.problem}. {error.remedy}"}, 400)
