"""The verb that predicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklm.cli.images import is_image_folder, predict_images
from tasklm.cli.options import TextColumn
from tasklm.errors import RecipeError
from tasklm.storage.json_lines import json_line

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.serve.predictor import Predictor

OfSeveral = Annotated[
    str | None,
    typer.Option(help="Task, for a model of several tasks; all: every task that takes the input."),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        help=(
            "Answer with label sets that contain the right label in this share of "
            "cases, such as 0.95, or with unknown."
        )
    ),
]
Beam = Annotated[int | None, typer.Option(help="Text to text: beam size; 1: greedy.")]
NBest = Annotated[
    int, typer.Option(help="Text to text: candidates to print, as tasklm rerank reads them.")
]


def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder `model` of a run, `ensemble`, or an ONNX export.")
    ],
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT",
            help=(
                "A text, a file (CSV, TSV, JSONL, Parquet, or one text per line), "
                "or - for stdin; for a model of images: image files or folders."
            ),
        ),
    ] = None,
    task: OfSeveral = None,
    text_column: TextColumn = None,
    coverage: Coverage = None,
    beam: Beam = None,
    n_best: NBest = 1,
) -> None:
    """Predict labels and probabilities, one JSON object per line.

    Example: tasklm predict runs/first/model "a text to classify"

    Example: tasklm predict runs/many/model --task all new.txt

    Example: tasklm predict runs/first/model --coverage 0.95 new.txt

    Example: tasklm predict runs/german/model --n-best 5 new.txt

    Example: tasklm predict runs/photos/model photo.png more-photos/
    """
    from tasklm.recipe.data_sections import Data
    from tasklm.serve.inputs import is_file
    from tasklm.serve.predictor import Predictor

    what, *others = given or ["-"]
    if is_image_folder(model):
        options = {"--task": task, "--text-column": text_column, "--coverage": coverage}
        options |= {"--beam": beam, "--n-best": n_best != 1}
        predict_images(model, [what, *others], [name for name in options if options[name]])
        return
    if others:
        raise RecipeError([f"one input at a time: give {others[0]!r} to another tasklm predict"])
    data = Data(text_column=text_column or "")
    predictor = Predictor(model, data=data, few=what != "-" and not is_file(what))
    if beam is not None or n_best != 1:
        predictor = predictor.searching(beam, n_best)
    for answer in _answers(predictor, what, task, coverage):
        typer.echo(json_line(answer))


def _answers(
    predictor: Predictor, what: str, name: str | None, coverage: float | None
) -> Iterator[dict[str, Any]]:
    """Yields what is printed."""
    from tasklm.serve.all_tasks import AllTasks
    from tasklm.serve.inputs import examples_of
    from tasklm.tasks.several import ALL, members_of

    if name == ALL:
        if coverage is not None:
            problem = "--coverage is for one task: thresholds differ between tasks"
            raise RecipeError([f"{problem}. Name one with --task"])
        tasks = AllTasks(predictor)
        yield from tasks.answers(tasks.examples_of(what, sys.stdin.buffer))
        return
    if name is not None or members_of(predictor.task):
        predictor = predictor.of(name or "")
    examples = examples_of(what, predictor.task, predictor.data, sys.stdin.buffer)
    if coverage is not None:
        for example, row in predictor.stream_sets(examples, coverage):
            yield {"text": example.text, **row}
        return
    for example, answer in predictor.stream(examples):
        yield {"text": example.text, **answer}
