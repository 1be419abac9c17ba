"""What the verbs do where the data or the model is images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tasklm.storage.json_lines import json_line

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.recipe.schema import Recipe


def is_image_recipe(recipe: Recipe) -> bool:
    """Whether a recipe's data is images."""
    from tasklm.images.settings import is_image_task

    return not recipe.several.tasks and is_image_task(recipe.data)


def flow_of(recipe: Recipe) -> Any:
    """The module with the flow of a recipe: that of images, or that of text."""
    if is_image_recipe(recipe):
        from tasklm.images import flow as image_flow

        return image_flow
    from tasklm.pipeline import flow as text_flow

    return text_flow


def predict_images(model: Path, what: Sequence[str]) -> None:
    """Prints a label and probabilities for each image, one JSON object a line."""
    from tasklm.images.model import ImagePredictor, image_files

    predictor = ImagePredictor(model)
    for one in what:
        for file, answer in predictor.stream(image_files(Path(one))):
            typer.echo(json_line({"file": str(file), **answer}))
