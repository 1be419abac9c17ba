"""The format of request bodies: their checks, and the same as JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from tasklm.errors import DataError
from tasklm.serve.inputs import Input
from tasklm.serve.limits import MOST_TOP, Limits, Refused
from tasklm.tasks.base import Task

NAMES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
USUAL_TOP = 5


@dataclass(frozen=True)
class Forms:
    """The forms that an input of a task may have; a row is always possible."""

    text: bool
    pair: bool
    needs: str  # why a text is not enough; "" if it is

    @property
    def words(self) -> str:
        """The forms as text."""
        texts = ["a text"] * self.text + ["a list of two texts"] * self.pair
        row = "an object with the columns of the training data"
        if not texts:
            return row
        return f"{', '.join(texts)} or {row}"

    @property
    def examples(self) -> list[Any]:
        """Example inputs of these forms, except rows, whose columns depend on the task."""
        return ["a text"] * self.text + [["one text", "another"]] * self.pair


def forms_of(task: Task) -> Forms:
    """The forms that a task accepts."""
    try:
        task.example_of("")
    except DataError as error:
        return Forms(False, task.pairs, error.problem)
    return Forms(True, task.pairs, "")


def predict_schema(limits: Limits, forms: Forms, sets: bool = True) -> dict[str, Any]:
    """The schema of a request for predictions; `sets`: it may ask for sets with a coverage."""
    one = _input_schema(limits, forms)
    inputs = {
        "type": "array",
        "maxItems": limits.inputs,
        "items": one,
        "description": "What to predict.",
    }
    properties: dict[str, Any] = {"inputs": inputs}
    if sets:
        properties["coverage"] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": (
                "Answer with sets of labels that have the right one in this share of all cases."
            ),
        }
    return {**_object(properties, ["inputs"]), "example": {"inputs": forms.examples}}


def explain_schema(limits: Limits, forms: Forms) -> dict[str, Any]:
    """The schema of a request for an explanation."""
    top = {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_TOP,
        "default": USUAL_TOP,
        "description": "Maximum number of training examples, and of passages, on each side.",
    }
    schema = _object({"input": _input_schema(limits, forms), "top": top}, ["input"])
    if forms.examples:
        schema["example"] = {"input": forms.examples[0], "top": 3}
    return schema


def problems_of_inputs(limits: Limits, forms: Forms) -> str:
    """What the checks of inputs refuse, as text."""
    too_long = f"that has more than {limits.characters:,} characters in all"
    columns = "whose columns are not those of the task"
    return f"an input that is not {forms.words}, {too_long}, or {columns}"


def predict_inputs(
    body: bytes, limits: Limits, forms: Forms, sets: bool = True
) -> tuple[list[Input], float | None]:
    """The inputs of a request, and the coverage of sets if it asks for these; raises Refused if the
    body does not match `predict_schema`.
    """
    values = _json_object(body, {"inputs", "coverage"} if sets else {"inputs"}, "inputs")
    inputs, coverage = values["inputs"], _coverage(values)
    if not isinstance(inputs, list):
        raise Refused(422, f"inputs is {_name(inputs)}, not a list.")
    if len(inputs) > limits.inputs:
        problem = (
            f"There are {len(inputs):,} inputs; at most {limits.inputs:,} are allowed per request."
        )
        raise Refused(422, f"{problem} Send several requests.")
    checked = [_input(one, f"inputs[{place}]", limits, forms) for place, one in enumerate(inputs)]
    return checked, coverage


def _coverage(values: Mapping[str, Any]) -> float | None:
    """The coverage that a request asks for; None if it asks for none."""
    if "coverage" not in values:
        return None
    coverage = values["coverage"]
    if type(coverage) not in (int, float) or not 0 < coverage < 1:
        raise Refused(422, "coverage must be a number between 0 and 1, such as 0.95.")
    return float(coverage)


def explain_input(body: bytes, limits: Limits, forms: Forms) -> tuple[Input, int]:
    """The input to explain and the number of texts; raises Refused if the body does not match
    `explain_schema`.
    """
    values = _json_object(body, {"input", "top"}, "input")
    top = values.get("top", USUAL_TOP)
    if type(top) is not int or not 1 <= top <= MOST_TOP:
        raise Refused(422, f"top must be a whole number from 1 to {MOST_TOP}.")
    return _input(values["input"], "input", limits, forms), top


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _input_schema(limits: Limits, forms: Forms) -> dict[str, Any]:
    text = {"type": "string", "maxLength": limits.characters}
    in_all = f"with at most {limits.characters:,} characters in all"
    pair = {
        "type": "array",
        "items": text,
        "minItems": 2,
        "maxItems": 2,
        "description": f"Two texts, {in_all}.",
    }
    needs = f" ({forms.needs})" if forms.needs else ""
    row = {
        "type": "object",
        "minProperties": 1,
        "description": f"A row: the columns of the training data{needs}, {in_all}.",
    }
    return {"anyOf": [text] * forms.text + [pair] * forms.pair + [row]}


def _json_object(body: bytes, known: set[str], required: str) -> dict[str, Any]:
    try:
        values = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(values, dict):
        raise Refused(422, f"The body is {_name(values)}, not an object.")
    if strange := sorted(values.keys() - known):
        names = " and ".join(sorted(known))
        raise Refused(422, f"{strange[0][:40]!r} is not a known name; use {names}.")
    if required not in values:
        raise Refused(422, f"{required} is missing.")
    return values


def _input(given: Any, where: str, limits: Limits, forms: Forms) -> Input:
    """An input of a valid form; the task's reader checks its columns."""
    is_list = forms.pair and isinstance(given, list)
    if is_list and (len(given) != 2 or not all(isinstance(text, str) for text in given)):
        raise Refused(422, f"{where} is not a list of two texts. Give {forms.words}.")
    is_text = forms.text and isinstance(given, str)
    if not (is_list or is_text or isinstance(given, dict)):
        needs = f": {forms.needs}" if forms.needs else ""
        raise Refused(422, f"{where} is {_name(given)}{needs}. Give {forms.words}.")
    one: Input = given
    count = characters(one)
    if count > limits.characters:
        raise Refused(
            422, f"{where} has {count:,} characters; at most {limits.characters:,} are allowed."
        )
    return one


def characters(value: Any) -> int:
    """The characters of all texts and column names in a value; other values count as one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + characters(one) for name, one in value.items())
    if isinstance(value, list):
        return sum(map(characters, value))
    return 1


def _name(value: Any) -> str:
    return NAMES.get(type(value), type(value).__name__)
