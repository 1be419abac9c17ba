"""Which charts the reports of tests have: their drawing takes half of a small run.

`python -m tests.charts PROGRAM …` runs a program that draws none.
"""

from __future__ import annotations

import functools
import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.analysis import class_vectors
from tasklm.report.page import Html

# The folders of tests about something else than reports, of which their runs write many.
WITHOUT = {
    "benchmarks",
    "comparing",
    "coverage",
    "docs",
    "export",
    "forecasting",
    "influence",
    "labelling",
    "students",
    "studying",
    "tasks",
    "updating",
}
# Here each chart is drawn once in a file: those with other lines or another title are others.
ONCE = {"cli", "end_to_end", "images", "serve"}
# … but for these, whose runs between them have every kind of task and every part of a report.
ALWAYS = {"test_flow.py", "test_kinds.py"}
CHARTS = (
    "answers.heat_map",
    "answers.reliability",
    "encoder_pictures.head_grid",
    "encoder_pictures.scatter",
    "sections.line_chart",
    "selection.histogram",
)


def choose(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Leaves out the charts that a file of tests, by its path in tests/, can do without."""
    folder = path.parts[0]
    if folder not in WITHOUT | ONCE or path.name in ALWAYS:
        return
    replace(patch, _once if folder in ONCE else _never)


def replace(
    patch: pytest.MonkeyPatch, stand_in: Callable[[Callable[..., Html]], Callable[..., Html]]
) -> None:
    """Puts what is made of each chart in its place, and points that are fast to find in place of
    t-SNE's.
    """
    patch.setattr(class_vectors, "in_the_plane", _first_axes)
    for name in CHARTS:
        module, _, chart = name.partition(".")
        drawn = getattr(importlib.import_module(f"tasklm.report.{module}"), chart)
        patch.setattr(f"tasklm.report.{name}", stand_in(drawn))


def leave_out() -> None:
    """Leaves out all charts of this process, and of those forked from it."""
    replace(pytest.MonkeyPatch(), _never)


def _never(_: Callable[..., Html]) -> Callable[..., Html]:
    return lambda *_, **__: Html("")


def _once(draw: Callable[..., Html]) -> Callable[..., Html]:
    """What draws as `draw` does, or gives what it drew of the same title and the same lines."""
    drawn: dict[tuple[str, tuple[str, ...]], Html] = {}

    @functools.wraps(draw)
    def chart(title: str, values: Any, *others: Any) -> Html:
        key = title, tuple(values) if isinstance(values, dict) else ()
        if not drawn.get(key):
            drawn[key] = draw(title, values, *others)
        return drawn[key]

    return chart


def _first_axes(vectors: np.ndarray) -> np.ndarray:
    """In place of t-SNE's points."""
    return np.asarray(vectors[:, :2], np.float64).round(3)


if __name__ == "__main__":
    leave_out()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)  # as for a program that is run by itself
    runpy.run_path(sys.argv[0], run_name="__main__")
