"""What the verb `forecast` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from tasklm.console.terminal import say
from tasklm.storage.json_lines import json_line
from tasklm.tracking import Tracker

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.recipe.schema import Recipe

screen = Console(stderr=True)
DEFAULT_SECONDS = 60.0


def show_forecast(recipe: Recipe, seconds: float, as_json: bool) -> None:
    """Forecasts the score of a recipe and prints it as a table with notes, or as JSON."""
    with Tracker(screen).progress("fitting linear models to subsets of train"):
        from tasklm.forecasting.forecast import forecast
        from tasklm.forecasting.lines import notes, table

        result = forecast(recipe, seconds)
    if as_json:
        typer.echo(json_line(result.to_dict()))
        return
    console = Console()
    console.print(table(result))
    for note in notes(result):
        say(console, f"· {note}")
