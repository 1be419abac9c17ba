"""The columns of rows, by the recipe of a run; apart, since a prediction needs no files of it."""

from __future__ import annotations

from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Recipe
from tasklm.serve.predictor import Columns


def columns_for(recipe: Recipe | None) -> Columns:
    """The columns of a run's training data by its recipe; the defaults if there is no run."""
    if recipe is None:
        return Data()
    if not recipe.several.tasks:
        return recipe.data
    # here, because it imports Numba to compare texts
    from tasklm.tasks.readers.several import columns_of

    return columns_of(recipe)
