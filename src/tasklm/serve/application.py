"""What the services of text and of images have in common: the state of the service and its
metrics, a page, errors as JSON, and the guard before all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

import tasklm
from tasklm.errors import DataError
from tasklm.serve.batching import QueueFull
from tasklm.serve.descriptions import DescribedApp, health_operation, metrics_operation
from tasklm.serve.guard import HEALTH, RETRY_SECONDS, Access, Guard, Lifecycle
from tasklm.serve.limits import Limits, Refused
from tasklm.serve.metrics import Metrics

METRICS = "/metrics"
PATHS = (HEALTH, METRICS, "/openapi.json")  # of every service
STYLE = ("tasklm.serve", "page.css", "text/css")
Page = dict[str, tuple[str, str, str]]  # path → package, file and type
Answer = Callable[[DataError], JSONResponse]


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


class Application(ABC):
    """An application with what every service has; a service adds paths of its own."""

    def __init__(self, kind: str, settings: Settings, lifecycle: Lifecycle) -> None:
        self.settings, self.lifecycle, self.metrics = settings, lifecycle, Metrics()
        self.app = DescribedApp(
            title=f"tasklm: {kind}",
            version=tasklm.__version__,
            lifespan=self.lifespan,
            docs_url=None,  # FastAPI's pages load scripts from another server
            redoc_url=None,
            redirect_slashes=False,
        )
        self.app.asks_for_token = settings.token is not None

    @abstractmethod
    def lifespan(self, app: Any) -> AbstractAsyncContextManager[None]:
        """A context in which the application runs."""

    def add(self, path: str, answer: Any, method: str, operation: dict[str, Any]) -> None:
        """Adds what answers a path, with what the OpenAPI document says of it."""
        self.app.add_api_route(path, answer, methods=[method], response_model=None, **operation)

    def guarded(self, page: Page, paths: Sequence[str], unreadable: Answer, inputs: str) -> Guard:
        """The application behind its guard, with a page. `paths`: its own; `unreadable` answers
        input that is wrong; `inputs` is what it is called that waits.
        """
        self.add(HEALTH, self.health, "GET", health_operation())
        self.add(METRICS, self.counts, "GET", metrics_operation())
        for path, file in page.items():
            self.add(path, _content(*file), "GET", {"include_in_schema": False})
        self._answer_errors(unreadable, inputs)
        access = Access(
            token=self.settings.token,
            hosts=self.settings.hosts,
            known=(*PATHS, *page, *paths),
            open_paths=(HEALTH, *page),
        )
        return Guard(self.app, self.metrics, self.lifecycle, access)

    async def health(self) -> Response:
        """Answers GET /health; 503 while the service stops, so that load balancers send no more."""
        if self.lifecycle.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ok"})

    async def counts(self) -> Response:
        """Answers GET /metrics."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    def _answer_errors(self, unreadable: Answer, inputs: str) -> None:
        retry = {"Retry-After": str(RETRY_SECONDS)}

        async def wrong(request: Request, error: Exception) -> Response:
            assert isinstance(error, DataError)
            return unreadable(error)

        async def full(request: Request, error: Exception) -> Response:
            detail = f"Too many {inputs} are waiting. Try again soon."
            return JSONResponse({"detail": detail}, 503, retry)

        self.app.add_exception_handler(Refused, _refused)
        self.app.add_exception_handler(DataError, wrong)
        self.app.add_exception_handler(QueueFull, full)
        self.app.add_exception_handler(Exception, _failed)


def _content(package: str, name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = files(package).joinpath(name).read_bytes()

    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": error.reason}, error.status, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "Internal error; see the terminal of the service."}, 500)
