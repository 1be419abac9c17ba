"""What the bodies of requests must be: their checks, and the same as JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from tasklm.serve.inputs import Input
from tasklm.serve.limits import MOST_TOP, Limits, Refused

WHAT = "a text, a list of two texts, or an object with the columns of the training data"
NAMES = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object", type(None): "null"}
USUAL_TOP = 5


def predict_schema(limits: Limits) -> dict[str, Any]:
    """Returns the schema of what is to be predicted."""
    inputs = {"type": "array", "maxItems": limits.inputs, "items": _input_schema(limits), "description": "What to predict."}
    return _object({"inputs": inputs}, ["inputs"], {"inputs": ["a text to classify", "another text"]})


def explain_schema(limits: Limits) -> dict[str, Any]:
    """Returns the schema of what is to be explained."""
    told = "Training examples, and passages, to show on each side at most."
    top = {"type": "integer", "minimum": 1, "maximum": MOST_TOP, "default": USUAL_TOP, "description": told}
    return _object({"input": _input_schema(limits), "top": top}, ["input"], {"input": "a text to classify", "top": 3})


def predict_inputs(body: bytes, limits: Limits) -> list[Input]:
    """Returns the inputs of a request; raises Refused where the body is not what `predict_schema` says."""
    values = _json_object(body, {"inputs"}, "inputs")
    inputs = values["inputs"]
    if not isinstance(inputs, list):
        raise Refused(422, f"inputs is {_name(inputs)}, not a list.")
    if len(inputs) > limits.inputs:
        raise Refused(422, f"There are {len(inputs):,} inputs; a request may have {limits.inputs:,}. Send several requests.")
    return [_input(one, f"inputs[{place}]", limits) for place, one in enumerate(inputs)]


def explain_input(body: bytes, limits: Limits) -> tuple[Input, int]:
    """Returns what is to be explained and by how many texts; raises Refused where the body is not what `explain_schema` says."""
    values = _json_object(body, {"input", "top"}, "input")
    top = values.get("top", USUAL_TOP)
    if type(top) is not int or not 1 <= top <= MOST_TOP:
        raise Refused(422, f"top must be a whole number from 1 to {MOST_TOP}.")
    return _input(values["input"], "input", limits), top


def _object(properties: dict[str, Any], required: list[str], example: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, "example": example}


def _input_schema(limits: Limits) -> dict[str, Any]:
    text = {"type": "string", "maxLength": limits.characters}
    pair = {"type": "array", "items": text, "minItems": 2, "maxItems": 2}
    row = {"type": "object", "description": f"A row: the columns of the training data, with {limits.characters:,} characters in all."}
    return {"anyOf": [text, pair, row]}


def _json_object(body: bytes, known: set[str], required: str) -> dict[str, Any]:
    try:
        values = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(values, dict):
        raise Refused(422, f"The body is {_name(values)}, not an object.")
    if strange := sorted(values.keys() - known):
        raise Refused(422, f"{strange[0][:40]!r} is not known here; there is {' and '.join(sorted(known))}.")
    if required not in values:
        raise Refused(422, f"{required} is missing.")
    return values


def _input(given: Any, where: str, limits: Limits) -> Input:
    """Returns an input that has the form of one; whether its columns are those of the task the model's reader says."""
    if isinstance(given, list) and (len(given) != 2 or not all(isinstance(text, str) for text in given)):
        raise Refused(422, f"{where} is a list, but not of two texts. Give {WHAT}.")
    if not isinstance(given, str | list | dict):
        raise Refused(422, f"{where} is {_name(given)}. Give {WHAT}.")
    count = characters(given)
    if count > limits.characters:
        raise Refused(422, f"{where} has {count:,} characters; {limits.characters:,} are allowed.")
    return given


def characters(value: Any) -> int:
    """Returns the characters of all texts in a value, names of columns included; other values count as one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + characters(one) for name, one in value.items())
    return sum(map(characters, value)) if isinstance(value, list) else 1


def _name(value: Any) -> str:
    return NAMES.get(type(value), type(value).__name__)
