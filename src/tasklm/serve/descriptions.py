"""What the service says about itself: its OpenAPI document, and what the task takes, for the page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI

from tasklm.errors import DataError
from tasklm.evaluate.explaining import Explanation
from tasklm.serve.bodies import explain_schema, predict_schema
from tasklm.serve.limits import Limits
from tasklm.tasks.base import Task

PROBLEMS = {
    400: "The body is not valid JSON.",
    401: "The token is missing or wrong.",
    404: "There is nothing to explain with: the service has not what the model was trained on, or its kind cannot be explained.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    421: "The service is asked for by a name that is not allowed.",
    422: "The body is JSON, but not what is asked for; the message says why.",
    503: "Too many inputs wait, or connections are open, or the explanation took too long; try again after the seconds in Retry-After.",
}
OF_BODIES = (400, 401, 408, 413, 415, 421, 422, 503)
Schema = dict[str, Any]


class DescribedApp(FastAPI):
    """An application whose OpenAPI document names the bearer token, where one is asked for."""

    asks_for_token = False

    def openapi(self) -> Schema:
        """Returns the OpenAPI document."""
        document: Schema = super().openapi()
        if self.asks_for_token:
            document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path == "/health" else [{"token": []}]
        return document


def predict_operation(limits: Limits) -> Schema:
    """Returns the arguments of FastAPI's route for predictions."""
    answers = {"type": "array", "items": {"type": "object"}, "description": "One answer per input, in order."}
    found = {"type": "object", "properties": {"answers": answers}, "required": ["answers"]}
    return {
        "summary": "Predict",
        "description": "The answer of the model for each text, pair of texts or row.",
        "openapi_extra": _body(predict_schema(limits)),
        "responses": {200: _json("The answers.", found), **_problems(*OF_BODIES)},
    }


def explain_operation(limits: Limits) -> Schema:
    """Returns the arguments of FastAPI's route for explanations."""
    return {
        "summary": "Explain",
        "description": "A prediction, with the training examples and passages that pushed for and against it.",
        "openapi_extra": _body(explain_schema(limits)),
        "responses": {200: {"model": Explanation, "description": "The prediction and its reasons."}, **_problems(*OF_BODIES, 404)},
    }


def task_operation() -> Schema:
    """Returns the arguments of FastAPI's route for what the task takes."""
    told = "The kind of task, its labels, whether a text or a pair of texts is enough to ask, and the limits of a request."
    return {"summary": "What the task takes", "responses": {200: _json(told, {"type": "object"}), **_problems(401, 421)}}


def health_operation() -> Schema:
    """Returns the arguments of FastAPI's route for the state of the service."""
    state = {"type": "object", "properties": {"status": {"enum": ["ok", "stopping"]}}, "required": ["status"]}
    stopping = "The service finishes what it has taken and ends."
    found = {200: _json("It does.", state), 503: _json(stopping, state), **_problems(421)}
    return {"summary": "Whether the service takes requests", "responses": found}


def metrics_operation() -> Schema:
    """Returns the arguments of FastAPI's route for the counts."""
    text = {"description": "Counts in Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"summary": "Counts for Prometheus", "responses": {200: text, **_problems(401, 421)}}


def what_it_takes(task: Task, texts: int | None, explains: bool, limits: Limits) -> Schema:
    """Returns what a page must know to ask; `texts` is how many the training examples have, where that is known."""
    try:
        task.asked("")
        needs = ""
    except DataError as error:
        needs = error.problem
    asked = {"text": not needs, "pair": task.pairs, "texts": texts, "needs": needs}
    return {"kind": task.kind, "labels": task.labels, **asked, "explains": explains, "limits": asdict(limits)}


def _problems(*statuses: int) -> dict[int | str, Schema]:
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
    return {status: _json(PROBLEMS[status], detail) for status in statuses}


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _body(schema: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
