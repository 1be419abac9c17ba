"""Which flow a recipe takes: that of images, or that of text. Neither is imported before it is
known.
"""

from __future__ import annotations

from typing import Any

from tasklm.recipe.schema import Recipe
from tasklm.tasks.readers.image_files import is_image_task


def is_image_recipe(recipe: Recipe) -> bool:
    """Whether a recipe's data is images."""
    return not recipe.several.tasks and is_image_task(recipe.data)


def flow_of(recipe: Recipe) -> Any:
    """The module with the flow of a recipe: `fit` and `check`."""
    if is_image_recipe(recipe):
        from tasklm.images import flow as image_flow

        return image_flow
    from tasklm.pipeline import flow as text_flow

    return text_flow
