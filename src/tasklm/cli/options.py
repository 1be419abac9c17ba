"""The options that several verbs share, and the recipe keys given as options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tasklm.errors import RecipeError

EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}  # keys of the recipe

Train = Annotated[
    str,
    typer.Argument(
        help="Labelled file (CSV, TSV, JSONL, Parquet; .gz, .zst), or one folder per label."
    ),
]
Tasks = Annotated[
    list[str],
    typer.Argument(
        help="Labelled file, or one folder per label; give several for one model of several tasks.",
        metavar="TRAIN...",
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option("--corpus", help="Raw text: file, folder or glob. May be repeated."),
]
Dev = Annotated[
    str | None, typer.Option(help="Development set, used to pick the best epoch and seed.")
]
Test = Annotated[str | None, typer.Option(help="Test set, scored once at the end.")]
Out = Annotated[Path, typer.Option(help="Run folder; repeat the command to continue a run.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="Recipe to start from.")]
TextColumn = Annotated[str | None, typer.Option(help="Column with the text.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with the label.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Name of the task, for a model of several tasks.")
]
Minutes = Annotated[float | None, typer.Option(help="Time budget for the whole command.")]
Flops = Annotated[float | None, typer.Option(help="Training FLOPs, instead of minutes.")]
Memory = Annotated[str | None, typer.Option(help="Memory limit for selection, such as 2GB.")]
Engine = Annotated[str | None, typer.Option(help="Search engine: local, spark or elastic.")]
Master = Annotated[
    str | None,
    typer.Option(help="Spark master for --engine spark: local[2], spark://host:7077, yarn …"),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        help="Leave files, folders or globs out of the corpus, or 'licence:CC-BY-NC*'. May be "
        "repeated.",
    ),
]
Licence = Annotated[
    list[str] | None,
    typer.Option("--licence", help="Licence of files, as 'wiki/*=CC0-1.0'. May be repeated."),
]
Compare = Annotated[
    str | None,
    typer.Option(
        help="Ablations to train, comma-separated: task-only, random, no-teacher, supervised, "
        "single."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the full log.")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder.")]


def overrides_of(extra: list[str], **named: Any) -> dict[str, Any]:
    """Dotted keys → values, from `--section.key value` words and from named options."""
    overrides: dict[str, Any] = {
        key.replace("__", "."): value for key, value in named.items() if value is not None
    }
    problems, words = [], list(extra)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            problems.append(
                f"unexpected argument {word!r}; recipe options look like --section.key value"
            )
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and (not words or words[0].startswith("--")):
            problems.append(f"--{name} needs a value")
            continue
        overrides[name.replace("-", "_")] = value if equals else words.pop(0)
    if problems:
        raise RecipeError(problems)
    return overrides


def files_and_options(words: list[str]) -> tuple[list[str], list[str]]:
    """The files among the words of a command, and the recipe options with their values."""
    files, options, rest = list[str](), list[str](), list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            files.append(word)
            continue
        options.append(word)
        if "=" not in word and rest:
            options.append(rest.pop(0))
    return files, options


def data_options(
    train: str | list[str],
    corpus: list[str] | None,
    dev: str | None,
    test: str | None,
    text_column: str | None,
    label_column: str | None,
) -> dict[str, Any]:
    """The data options, under the names that `overrides_of` takes."""
    given = [train] if isinstance(train, str) else train
    named: dict[str, Any] = {"data__train": given[0]} if given else {}
    if len(given) > 1:
        if dev or test:
            problem = "--dev and --test are for one task"
            raise RecipeError([f"{problem}; give each of several tasks as a folder of its splits"])
        named = {"several__tasks": given}
    files = {**named, "data__corpus": corpus, "data__dev": dev, "data__test": test}
    return {**files, "data__text_column": text_column, "data__label_column": label_column}
