"""The recipe of a run with `train.start`, which defines the vocabulary and the encoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tasklm.encoders.checkpoints.folder import (
    TOKENIZER,
)
from tasklm.encoders.shapes import SIZES, shape_of
from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import Model, Tokens
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import is_stage1
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.start import NUMBERS, Start, starting_weights


def started(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe of a run in `folder` with the vocabulary and the encoder of its start.

    Raises RecipeError if it sets others. A key at its default sets nothing.
    """
    if not recipe.train.start:
        return recipe
    start = starting_weights(Path(recipe.train.start))
    problems = [
        *_same_run(folder, start),
        *_other_vocabulary(recipe.tokens, start),
        *_other_encoder(recipe.model, start),
        *start.problems(recipe.train),
        *_too_long(recipe.tokens.length, start),
    ]
    if problems:
        raise RecipeError(problems)
    size = recipe.model.size
    if size == "auto":  # only a name: everything it stands for is set explicitly
        layers_and_width = start.numbers["layers"], start.numbers["width"]
        names = [name for name, numbers in SIZES.items() if numbers == layers_and_width]
        size = [*names, "tiny"][0]
    return recipe.changed(
        tokens={"kind": "file", "file": str(start.folder / TOKENIZER), "vocabulary": None},
        model={"encoder": start.encoder, "size": size, **start.numbers},
        train={"start": str(start.folder)},
    )


def _same_run(folder: Path, start: Start) -> list[str]:
    in_run = start.folder.parent == folder.resolve()
    if in_run and (start.folder.name == "model" or is_stage1(start.folder)):
        return ["train.start is this run itself; choose another folder with --out"]
    return []


def _other_vocabulary(tokens: Tokens, start: Start) -> list[str]:
    types = len(start.vocabulary)
    problem = _vocabulary_problem(tokens, start.vocabulary)
    if not problem and tokens.vocabulary not in (None, types):
        problem = f"tokens.vocabulary = {tokens.vocabulary} needs a new vocabulary"
    if not problem:
        return []
    instead = f"that of {start.folder} ({types:,} types)"
    return [f"{problem}, but train.start brings its own: {instead}; leave it out"]


def _vocabulary_problem(tokens: Tokens, vocabulary: Vocabulary) -> str:
    """The setting that contradicts the vocabulary of the start, if any."""
    if tokens.kind == "file":
        if tokens.file and not _is_same(Vocabulary.load(Path(tokens.file)), vocabulary):
            return f"tokens.file = {tokens.file!r} is another vocabulary"
    elif tokens.kind != Tokens().kind:
        return f"tokens.kind = {tokens.kind!r} needs a new vocabulary"
    elif tokens.lowercase is False:
        return "tokens.lowercase = false needs a new vocabulary"
    return ""


def _is_same(first: Vocabulary, second: Vocabulary) -> bool:
    return bool(first.tokenizer.to_str() == second.tokenizer.to_str())


def _other_encoder(model: Model, start: Start) -> list[str]:
    if model.encoder not in (Model().encoder, start.encoder):
        return [
            f"model.encoder = {model.encoder!r}, but train.start has {start.encoder!r}: "
            f"{start.folder}; leave it out"
        ]
    wanted = {name: value for name in NUMBERS if (value := getattr(model, name)) is not None}
    size = ""
    if model.size != "auto":
        size = f" (model.size = {model.size!r})"
        shape = shape_of(dataclasses.replace(model, encoder=start.encoder), model.size, 1, 1)
        wanted = {name: getattr(shape, name) for name in NUMBERS}
        wanted["embedding"] = shape.token_width
    other = [name for name, value in wanted.items() if value != start.numbers[name]]
    if not other:
        return []
    ours = ", ".join(f"{name} {wanted[name]}" for name in other)
    theirs = ", ".join(f"{name} {start.numbers[name]}" for name in other)
    return [
        f"model: {ours}{size}, but the encoder of train.start has {theirs}: {start.folder}; "
        "leave them out"
    ]


def _too_long(length: int | None, start: Start) -> list[str]:
    most = start.shape.positions
    if length is None or length <= most or start.any_length:
        return []
    return [
        f"tokens.length = {length}: the encoder of train.start has {most} positions; "
        f"set it to {most} or less"
    ]
