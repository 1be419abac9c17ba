"""The reference, written from the code: verbs from the command line itself, keys from the recipe,
classes from their docstrings.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

import tasklm
from tasklm import errors
from tasklm.api.estimator import Labels, TaskLM, Texts
from tasklm.api.studies import study
from tasklm.api.verbs import compare, distill, forecast
from tasklm.bill.record import Bill, LabelledData, LabelledPart, TextFile, TextPart
from tasklm.cli.app import app
from tasklm.comparing.results import Against, Comparison, Cost, Latency, Result
from tasklm.evaluate.scores import Row, Scores, Spread
from tasklm.forecasting.forecast import Expected, Forecast, Trained
from tasklm.influence.evidence import Attribution, Attributions
from tasklm.notebook import Report, ShownBill, ShownExplanation
from tasklm.pipeline.bill_check import Problem, Verification, verify_bill
from tasklm.pipeline.file_check import Damage, Scrub, check_files
from tasklm.recipe.schema import section_types
from tasklm.serve.inputs import Input
from tasklm.studying.results import Cell, Finding, Outcome
from tasklm.studying.study import HERE, Line, load_study, studies

TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
ALIASES = {"Texts": Texts, "Labels": Labels, "Input": Input}
OF_THE_RECIPE = "Also any key of the [recipe](recipe.md): `--section.key value`."


def reference_pages() -> dict[str, str]:
    """The pages by their names under docs/."""
    return {
        "reference/cli.md": cli_page(),
        "reference/recipe.md": recipe_page(),
        "reference/api.md": api_page(),
        "reference/studies.md": studies_page(),
    }


def cli_page() -> str:
    """Every verb with its arguments, options and examples."""
    command: Any = get_command(app)
    parts = [
        "# Command line",
        (
            "`tasklm VERB --help` says the same. "
            "Results go to standard output, messages to standard error."
        ),
    ]
    for name, verb in command.commands.items():
        hints = typing.get_type_hints(inspect.unwrap(verb.callback))
        rows = [_parameter(param, hints[param.name]) for param in verb.params]
        parts += [
            f"## tasklm {name}",
            *_help(verb.help or ""),
            _table(("argument or option", "takes", "default", ""), rows),
        ]
        if verb.context_settings.get("allow_extra_args"):
            parts.append(OF_THE_RECIPE)
    return _page(parts)


def _help(text: str) -> list[str]:
    """The paragraphs of a help text; examples become blocks."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = " ".join(paragraph.split())
        found.append(
            f"```sh\n{line.removeprefix('Example: ')}\n```"
            if line.startswith("Example: ")
            else _escaped(line)
        )
    return found


def _parameter(param: Any, hint: Any) -> tuple[str, str, str, str]:
    """The row of an argument or an option."""
    argument = param.param_type_name == "argument"
    names = [param.name.upper()] if argument else [*param.opts, *param.secondary_opts]
    takes = "" if hint is bool else _type(_without_none(hint))
    value = param.default
    default = (
        "needed" if param.required else "" if value is None or value is False else f"`{value}`"
    )
    return ", ".join(f"`{name}`" for name in names), takes, default, param.help or ""


def _without_none(hint: Any) -> Any:
    """The other part of `X | None`."""
    return typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint


def recipe_page() -> str:
    """Every key of every section with type, default, limits and meaning."""
    parts = [
        "# Recipe keys",
        "A recipe is a TOML file with these sections. "
        "Every key is also an option of the command line, `--section.key value`, and a key of "
        '`TaskLM(settings={"section.key": value})`. '
        "What is given there counts more than the recipe, the recipe more than the defaults. "
        "*auto*: the budget or the data decides, "
        "and the run folder records what was decided. `tasklm init` writes a recipe with all "
        "keys and these comments.",
    ]
    for name, section in section_types().items():
        hints = typing.get_type_hints(section)
        rows = [
            (f"`{field.name}`", *_key(field, hints[field.name]))
            for field in dataclasses.fields(section)
        ]
        parts += [f"## {name}", _table(("key", "type", "default", ""), rows)]
    return _page(parts)


def _key(field: dataclasses.Field[Any], hint: Any) -> tuple[str, str, str]:
    kind = _type(hint)
    low, high, choices = (field.metadata[name] for name in ("low", "high", "choices"))
    limits = [
        *([f"at least {low:g}"] if low is not None else []),
        *([f"at most {high:g}"] if high is not None else []),
    ]
    if choices:
        kind = " or ".join(f"`{choice}`" for choice in choices)
    default = "auto" if field.default is None else _shown(field.default)
    return ", ".join([kind, *limits]), default, field.metadata["help"]


def _type(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(
            "auto" if part is type(None) else _type(part) for part in typing.get_args(hint)
        )
    return {tuple: "list of texts", list: "text"}.get(typing.get_origin(hint), "") or TYPES[hint]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "empty" if value in ("", ()) else f"`{value}`"


def api_page() -> str:
    """The classes that a program meets, from their docstrings and signatures."""
    parts = [
        "# Python",
        "`from tasklm import TaskLM` gives the model, "
        "and `from tasklm import TaskLMError` the family of its errors. Types are complete "
        "(`py.typed`), so that mypy and editors know them.",
        "## TaskLM",
        _doc(TaskLM),
        f"```text\nTaskLM{_signature(TaskLM.__init__)}\n```",
    ]
    for name, method in vars(TaskLM).items():
        plain = method.__func__ if isinstance(method, classmethod) else method
        if not name.startswith("_") and inspect.isfunction(plain):
            parts += [f"### {name}", f"```text\n{name}{_signature(plain)}\n```", _doc(plain)]
    for function in (forecast, compare, distill, study, tasklm.studies, check_files, verify_bill):
        name = function.__name__
        parts += [f"## {name}", f"```text\n{name}{_signature(function)}\n```", _doc(function)]
    parts += [
        "## What methods take",
        _table(
            ("name", "type"),
            [(f"`{name}`", f"`{_alias(alias)}`") for name, alias in ALIASES.items()],
        ),
    ]
    parts.append("## What methods return")
    for cls in (
        Scores,
        Row,
        Spread,
        ShownExplanation,
        Attributions,
        Attribution,
        Report,
        Scrub,
        Damage,
        ShownBill,
        Bill,
        TextFile,
        TextPart,
        LabelledData,
        LabelledPart,
        Verification,
        Problem,
        Forecast,
        Trained,
        Expected,
        Comparison,
        Result,
        Cost,
        Latency,
        Against,
        Outcome,
        Cell,
        Finding,
    ):
        rows = [(f"`{field.name}`", f"`{field.type}`") for field in dataclasses.fields(cls)]
        parts += [f"### {cls.__name__}", _doc(cls), _table(("field", "type"), rows)]
    parts.append("## Errors")
    for kind in (
        errors.TaskLMError,
        errors.RecipeError,
        errors.DataError,
        errors.RunError,
        errors.DamagedError,
        errors.TrainingError,
    ):
        parts += [f"### {kind.__name__}", _doc(kind)]
    return _page(parts)


def studies_page() -> str:
    """Every study: the command, what varies, what the paper says, and what is not to be had."""
    known = [load_study(name) for name in studies()]
    index = [[f"`{one.name}`", one.title, one.source] for one in known]
    parts = [
        "# From the paper to the command",
        "Tables and figures of the papers as studies: `tasklm study NAME --data tasks/ --corpus "
        "texts/` ([how](../how-to/studies.md)).",
        _table(["study", "what varies", "in"], index),
    ]
    for one in known:
        parts += [f"## {one.name}", f"{one.title}: {one.source}."]
        rows = [
            [
                line.name,
                ", ".join(f"`{key} = {value}`" for key, value in _keys_of(line).items()),
                ", ".join(f"{task} {score:g}" for task, score in line.published.items()),
            ]
            for line in one.lines
        ]
        parts.append(_table(["row", "its own keys", f"published ({one.split})"], rows))
        parts += [f"- {claim.text} ({claim.better} − {claim.than})" for claim in one.claims]
        parts += [f"- Not here: {text}" for text in one.missing]
    elsewhere = tomllib.loads((HERE / "elsewhere.toml").read_text(encoding="utf-8"))["tables"]
    rows = [[one["table"], one["why"]] for one in elsewhere]
    parts += ["## What no study has", _table(["table or figure", "instead, or why not"], rows)]
    return _page(parts)


def _keys_of(line: Line) -> dict[str, Any]:
    """The keys of a row, with those that say what it has of other rows."""
    given = {
        "together": ", ".join(line.together),
        "teachers": line.teachers,
        "start": line.start,
        "until": line.until,
    }
    return {**{key: value for key, value in given.items() if value}, **line.recipe}


def _alias(alias: Any) -> str:
    """A type as people write it: without modules."""
    return re.sub(r"\w+\.", "", str(alias))


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    shown = []
    for parameter in (
        one for one in signature.parameters.values() if one.name not in ("self", "cls")
    ):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{parameter.name}: {parameter.annotation}{default}")
    back = "" if function.__name__ == "__init__" else f" -> {signature.return_annotation}"
    return "(\n" + "".join(f"    {one},\n" for one in shown) + f"){back}" if shown else f"(){back}"


def _doc(thing: Any) -> str:
    """A docstring; lines such as `name: what it is` become a list."""
    return re.sub(
        r"^(\w+): ", r"- **\1**: ", _escaped(inspect.getdoc(thing) or ""), flags=re.MULTILINE
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """The text for a cell: bars outside code would end it."""
    parts = " ".join(text.split()).split("`")
    return "`".join(
        part if at % 2 else _escaped(part).replace("|", "\\|") for at, part in enumerate(parts)
    )


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"
