"""What the verbs do where the data or the model is images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from tasklm.console.terminal import say, say_command
from tasklm.errors import RecipeError
from tasklm.images.entrance import is_image_recipe
from tasklm.recipe.image import IMAGE
from tasklm.storage.json_lines import json_line
from tasklm.tasks.readers.image_files import refuse_images

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.images.model import ImagePredictor
    from tasklm.recipe.schema import Recipe
    from tasklm.serve.application import Settings
    from tasklm.serve.engines import Engine
    from tasklm.serve.guard import Guard, Lifecycle


def starter_of(recipe: Recipe) -> Any:
    """What writes the first recipe for data: of images, or of text."""
    if is_image_recipe(recipe):
        from tasklm.images.starter import starting_recipe as of_images

        return of_images
    from tasklm.pipeline.starter import starting_recipe

    return starting_recipe


def refuse_image_recipe(recipe: Recipe, verb: str, reason: str) -> None:
    """Raises RecipeError for a verb that cannot work where a recipe's data is images."""
    if is_image_recipe(recipe):
        refuse_images(IMAGE, f"tasklm {verb}", reason)


def is_image_folder(where: Path) -> bool:
    """Whether a folder is a run on images, a model of images, or an export of one."""
    from tasklm.images.model import is_image_model
    from tasklm.run_folder import MODEL, is_run, recipe_of

    if is_run(where):
        return is_image_model(where / MODEL) or recipe_of(where).data.kind == IMAGE
    return is_image_model(where)


def refuse_image_folders(where: Iterable[Path], verb: str, reason: str) -> None:
    """Raises RecipeError for a verb that cannot work where a folder is of images."""
    if any(map(is_image_folder, where)):
        refuse_images(IMAGE, f"tasklm {verb}", reason)


def predict_images(where: Path, what: Sequence[str], options: Sequence[str]) -> None:
    """Prints a label and probabilities for each image, one JSON object a line."""
    from tasklm.images.model import ImagePredictor, image_files

    if options:
        raise RecipeError([f"{options[0]} is for models of text, and this is one of images"])
    if "-" in what:
        problem = "images are not read from standard input"
        raise RecipeError([f"{problem}: name PNG or JPEG files, or folders of them"])
    predictor = ImagePredictor(model_in(where))
    for one in what:
        for row in predictor.of_files(image_files(Path(one))):
            typer.echo(json_line(row))


def model_in(where: Path) -> Path:
    """The folder of the model of a run, or the folder itself."""
    from tasklm.run_folder import MODEL, is_run

    return where / MODEL if is_run(where) else where


def explain_image(where: Path, image: str, as_json: bool) -> None:
    """Shows which cells of an image speak for its label, and writes that as a picture."""
    from tasklm.images.model import ImagePredictor
    from tasklm.images.pictures import explained_picture, png_of
    from tasklm.storage.files import write_bytes

    answer, pixels, evidence = ImagePredictor(model_in(where)).evidence(image)
    if as_json:
        typer.echo(json_line({"file": image, **answer, "cells": evidence.tolist()}))
        return
    target = Path(f"{Path(image).stem}-cells.png")
    write_bytes(target, png_of(explained_picture(pixels, evidence)))
    out, label = Console(), answer["label"]
    say(out, f"{label} (probability {answer['probabilities'][label]:.2f})", style="bold")
    say(out, "what each cell adds to it, in logits; the answer is by their mean:")
    for line in evidence:
        say(out, " ".join(f"{number:+6.2f}" for number in line))
    say_command(out, str(target), "picture")


def show_image_export(where: Path, to: str, out: Path | None, as_json: bool) -> None:
    """Writes a model of images as ONNX, and says what was written."""
    from tasklm.images.exporting import export_images

    exported, folder = export_images(where, to, out)
    if as_json:
        typer.echo(json_line({**asdict(exported), "folder": str(folder)}))
        return
    console = Console()
    say(console, f"wrote {folder}: {exported.megabytes:.2f} MB, loads with {exported.loads_with}")
    say(console, f"largest difference from PyTorch on random images: {exported.max_difference:.1e}")
    say(console, f"please fill in the licence in the model card, {folder / 'README.md'}")


def open_image_engine(folder: Path, choice: str, threads: int, scratch: Path) -> Engine:
    """The model of a folder on the chosen engine; `scratch` holds the ONNX file it may need."""
    from tasklm.images.engines import open_engine

    return open_engine(folder, choice, threads, scratch)


def create_image_app(predictor: ImagePredictor, settings: Settings, lifecycle: Lifecycle) -> Guard:
    """The application that serves a model of images."""
    from tasklm.images.service import create_app

    return create_app(predictor, settings, lifecycle)
