"""The service's self-description: its OpenAPI document, and the inputs of the task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI

from tasklm.influence.evidence import Explanation
from tasklm.serve.bodies import Forms, explain_schema, forms_of, predict_schema, problems_of_inputs
from tasklm.serve.limits import MOST_TOP, Limits
from tasklm.tasks.base import Task

PROBLEMS = {
    400: "The body is not valid JSON.",
    401: "The token is missing or wrong.",
    404: (
        "Explanations are not available: the training data is missing, or the kind of task "
        "cannot be explained."
    ),
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    421: "The host name of the request is not allowed.",
    503: (
        "Too many waiting inputs or open connections, or the explanation took too long; try "
        "again after the seconds in Retry-After."
    ),
}
OF_BODIES = (400, 401, 408, 413, 415, 421, 503)
Schema = dict[str, Any]
DETAIL: Schema = {
    "type": "object",
    "properties": {"detail": {"type": "string"}},
    "required": ["detail"],
}


class DescribedApp(FastAPI):
    """An application whose OpenAPI document names the bearer token, if one is required."""

    asks_for_token = False

    def openapi(self) -> Schema:
        """The OpenAPI document."""
        document: Schema = super().openapi()
        if self.asks_for_token:
            document.setdefault("components", {})["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path == "/health" else [{"token": []}]
        return document


def predict_operation(limits: Limits, forms: Forms, sets: bool = True) -> Schema:
    """The arguments of FastAPI's route for predictions."""
    answers = {
        "type": "array",
        "items": {"type": "object"},
        "description": "One answer per input, in order.",
    }
    schema = {"type": "object", "properties": {"answers": answers}, "required": ["answers"]}
    wrong = f"more than {limits.inputs:,} inputs, {problems_of_inputs(limits, forms)}"
    if sets:
        wrong += ", a coverage that is not between 0 and 1, or that the model cannot promise"
    return {
        "summary": "Predict",
        "description": "The prediction for each text, pair of texts or row.",
        "openapi_extra": _body(predict_schema(limits, forms, sets)),
        "responses": {
            200: _json("The answers.", schema),
            **_problems(OF_BODIES),
            422: _not_what_is_asked_for(wrong),
        },
    }


def all_operation(limits: Limits, forms: Forms) -> Schema:
    """The arguments of FastAPI's route for predictions of all of several tasks."""
    described = predict_operation(limits, forms, sets=False)
    described["summary"] = "Predict: every task"
    described["description"] = (
        "The predictions of every task that takes a text, pair of texts or row, by their names."
    )
    tasks = {"type": "object", "additionalProperties": {"type": "object"}}
    answer = {"type": "object", "properties": {"tasks": tasks}, "required": ["tasks"]}
    body = described["responses"][200]["content"]["application/json"]["schema"]
    body["properties"]["answers"]["items"] = answer
    return described


def explain_operation(limits: Limits, forms: Forms) -> Schema:
    """The arguments of FastAPI's route for explanations."""
    top = f"`top` that is not a whole number from 1 to {MOST_TOP}"
    inputs = problems_of_inputs(limits, forms)
    wrong = f"{top}, {inputs}, or a text that is longer than a row of the model"
    explained = {"model": Explanation, "description": "The prediction and its reasons."}
    return {
        "summary": "Explain",
        "description": (
            "A prediction, with the training examples and passages that support it and speak "
            "against it."
        ),
        "openapi_extra": _body(explain_schema(limits, forms)),
        "responses": {
            200: explained,
            **_problems((*OF_BODIES, 404)),
            422: _not_what_is_asked_for(wrong),
        },
    }


def task_operation() -> Schema:
    """The arguments of FastAPI's route for the description of the task."""
    description = (
        "The kind of task, its labels, whether a text or a pair of texts is enough as input, and "
        "the limits of a request."
    )
    return {
        "summary": "The task and its inputs",
        "responses": {200: _json(description, {"type": "object"}), **_problems((401, 421))},
    }


def health_operation() -> Schema:
    """The arguments of FastAPI's route for the state of the service."""
    state = {
        "type": "object",
        "properties": {"status": {"enum": ["ok", "stopping"]}},
        "required": ["status"],
    }
    stopping = "The service is finishing accepted requests before it stops."
    responses = {200: _json("It does.", state), 503: _json(stopping, state), **_problems((421,))}
    return {"summary": "Whether the service accepts requests", "responses": responses}


def metrics_operation() -> Schema:
    """The arguments of FastAPI's route for the metrics."""
    text = {
        "description": "Metrics in Prometheus' text format.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return {"summary": "Metrics for Prometheus", "responses": {200: text, **_problems((401, 421))}}


def what_it_takes(
    task: Task, texts: int | None, explains: bool, calibrated: bool, limits: Limits
) -> Schema:
    """What a page needs to know to build a request; `texts`: how many a training example has, if
    known; `calibrated`: whether sets with a coverage can be asked for.
    """
    about = {"kind": task.kind, "labels": task.labels, **asdict(forms_of(task)), "texts": texts}
    return {**about, "explains": explains, "sets": calibrated, "limits": asdict(limits)}


def _problems(statuses: Iterable[int]) -> dict[int | str, Schema]:
    return {status: _json(PROBLEMS[status], DETAIL) for status in statuses}


def _not_what_is_asked_for(wrong: str) -> Schema:
    """The description of status 422: the checks of `bodies`, and those of the task's reader."""
    problems = f"not an object, an unknown or missing name, {wrong}"
    detail = "`detail` names the input and the problem"
    return _json(f"Valid JSON, but not a valid request: {problems}; {detail}.", DETAIL)


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _body(schema: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
