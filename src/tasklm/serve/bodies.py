"""What the bodies of requests must be: their checks, and the same as JSON schemas."""

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
    """What an input of a task may be beside a row, which it may always be."""

    text: bool
    pair: bool
    needs: str  # why a text is not enough; "" where it is

    @property
    def words(self) -> str:
        """The forms in words."""
        texts = ["a text"] * self.text + ["a list of two texts"] * self.pair
        row = "an object with the columns of the training data"
        if not texts:
            return row
        return f"{', '.join(texts)} or {row}"

    @property
    def examples(self) -> list[Any]:
        """Inputs of these forms; none of rows, whose columns are the task's."""
        return ["a text"] * self.text + [["one text", "another"]] * self.pair


def forms_of(task: Task) -> Forms:
    """The forms that a task takes."""
    try:
        task.asked("")
    except DataError as error:
        return Forms(False, task.pairs, error.problem)
    return Forms(True, task.pairs, "")


def predict_schema(limits: Limits, forms: Forms) -> dict[str, Any]:
    """The schema of what is to be predicted."""
    one = _input_schema(limits, forms)
    inputs = {
        "type": "array",
        "maxItems": limits.inputs,
        "items": one,
        "description": "What to predict.",
    }
    return {**_object({"inputs": inputs}, ["inputs"]), "example": {"inputs": forms.examples}}


def explain_schema(limits: Limits, forms: Forms) -> dict[str, Any]:
    """The schema of what is to be explained."""
    top = {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_TOP,
        "default": USUAL_TOP,
        "description": "Training examples, and passages, to show on each side at most.",
    }
    schema = _object({"input": _input_schema(limits, forms), "top": top}, ["input"])
    if forms.examples:
        schema["example"] = {"input": forms.examples[0], "top": 3}
    return schema


def problems_of_inputs(limits: Limits, forms: Forms) -> str:
    """What the checks of inputs refuse, in words."""
    too_long = f"that has more than {limits.characters:,} characters in all"
    columns = "whose columns are not those of the task"
    return f"an input that is not {forms.words}, {too_long}, or {columns}"


def predict_inputs(body: bytes, limits: Limits, forms: Forms) -> list[Input]:
    """The inputs of a request; raises Refused where the body is not what `predict_schema` says."""
    values = _json_object(body, {"inputs"}, "inputs")
    inputs = values["inputs"]
    if not isinstance(inputs, list):
        raise Refused(422, f"inputs is {_name(inputs)}, not a list.")
    if len(inputs) > limits.inputs:
        problem = f"There are {len(inputs):,} inputs; a request may have {limits.inputs:,}."
        raise Refused(422, f"{problem} Send several requests.")
    return [_input(one, f"inputs[{place}]", limits, forms) for place, one in enumerate(inputs)]


def explain_input(body: bytes, limits: Limits, forms: Forms) -> tuple[Input, int]:
    """The input to explain and by how many texts; raises Refused as `explain_schema` says."""
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
        raise Refused(422, f"{strange[0][:40]!r} is not known here; there is {names}.")
    if required not in values:
        raise Refused(422, f"{required} is missing.")
    return values


def _input(given: Any, where: str, limits: Limits, forms: Forms) -> Input:
    """An input that has the form of one; its columns are checked by the task's reader."""
    is_list = forms.pair and isinstance(given, list)
    if is_list and (len(given) != 2 or not all(isinstance(text, str) for text in given)):
        raise Refused(422, f"{where} is a list, but not of two texts. Give {forms.words}.")
    is_text = forms.text and isinstance(given, str)
    if not (is_list or is_text or isinstance(given, dict)):
        needs = f": {forms.needs}" if forms.needs else ""
        raise Refused(422, f"{where} is {_name(given)}{needs}. Give {forms.words}.")
    one: Input = given
    count = characters(one)
    if count > limits.characters:
        raise Refused(422, f"{where} has {count:,} characters; {limits.characters:,} are allowed.")
    return one


def characters(value: Any) -> int:
    """The characters of all texts in a value, and of columns' names; other values count as one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + characters(one) for name, one in value.items())
    if isinstance(value, list):
        return sum(map(characters, value))
    return 1


def _name(value: Any) -> str:
    return NAMES.get(type(value), type(value).__name__)
